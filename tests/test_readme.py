"""README and documentation are true: their code runs, their commands are understood, their site is built.

In every page, blocks marked `python` and `console` run in their order, in one namespace and one folder.
Those marked `sh` do not run; but everywhere, also in the text, a `ttpfl` command must be one that there is.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from html.parser import HTMLParser
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
import typer
from typer.main import get_command
from typer.testing import CliRunner

from tests.helpers.pages import ROOT, blocks, commands
from ttpfl.cli import app
from ttpfl.core.rates import Rates
from ttpfl.experiment.recipe import names
from ttpfl.methods import base

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEMPLATES = sorted((ROOT / "src" / "ttpfl" / "flower" / "templates").glob("*.md"))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory. A page may register methods of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(base, "_methods", dict(base._methods))
    return tmp_path


def run_page(page: Path) -> dict[str, Any]:
    """Run everything that a page shows, and return what its Python blocks defined.

    A block marked `text` after one marked `python` is what that one prints. The random tensors of a page
    do not depend on the tests before it.
    """
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = None
    for kind, block in blocks(page):
        if kind == "text" and printed is not None:
            assert same_up_to_rounding(printed, block), printed
        printed = None
        if kind == "python":
            with redirect_stdout(StringIO()) as output:
                exec(compile(block, name(page), "exec"), names)
            printed = output.getvalue()
        elif kind == "console":
            for words, target in commands(block):
                result = CliRunner().invoke(app, words, prog_name="ttpfl")
                assert result.exit_code == 0, (words, result.output)
                if target is not None:
                    Path(target).write_text(result.stdout)
    return names


def same_up_to_rounding(printed: str, shown: str) -> bool:
    """Whether texts differ at most by a few units in their whole numbers, which depend on the processor."""
    pairs = zip(*(map(int, re.findall(r"\d+", text)) for text in (printed, shown)), strict=False)
    words = [re.sub(r"\d+", "0", text) for text in (printed, shown)]
    return words[0] == words[1] and all(abs(one - other) <= 3 for one, other in pairs)


def test_another_output_is_noticed() -> None:
    assert same_up_to_rounding("72% becomes 78%\n", "71% becomes 80%\n")
    assert not same_up_to_rounding("72% becomes 72%\n", "72% becomes 78%\n")
    assert not same_up_to_rounding("72% remains 72%\n", "72% becomes 72%\n")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(kind in ("python", "console") for kind, _ in blocks(p))], ids=name
)
def test_what_a_page_shows_runs(page: Path, folder: Path) -> None:
    run_page(page)
    rates = folder / "rates.safetensors"
    assert rates.exists() == (page.name == "README.md")
    assert not rates.exists() or rates.stat().st_size < 10_000  # a few kB, as it says


def test_the_tutorial_about_tables_personalises(folder: Path) -> None:
    """On the command line and in Python, with rates that were shown to help."""
    names = run_page(ROOT / "docs/tutorials/own-table.md")
    assert names["personal"].health.batches == 3
    assert names["personal"].health.smoothed.change_norm > 0
    assert Rates.load(folder / "rates" / "rates.safetensors").values.any()
    runs = json.loads((folder / "comparison" / "results.json").read_text())["runs"]
    means = {entry["label"]: fmean(entry["accuracy"]) for entry in runs[0]["entries"]}
    assert means["atp-batch"] > means["none"] + 0.02


def mentioned(page: Path) -> Iterator[list[str]]:
    """The `ttpfl` commands of a page: in blocks, and with options between single quotation marks."""
    text = page.read_text("utf-8")
    for kind, block in blocks(page):
        if kind in ("console", "sh"):
            yield from (words for words, _ in commands(block))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    for quoted in re.findall(r"`(ttpfl [^`]*)`", prose):
        yield from (words for words, _ in commands(" ".join(quoted.split())))


@pytest.mark.parametrize("page", [*PAGES, *TEMPLATES], ids=name)
def test_every_command_that_a_page_names_is_there(page: Path) -> None:
    for words in mentioned(page):
        understand(words)


def test_pages_mention_commands_and_files_that_exist() -> None:
    assert sum(1 for page in PAGES for _ in mentioned(page)) > 50
    pattern = r"(?:\b(?:src|benchmarks)/[\w/]+\.py|\bresults/[a-z][\w-]+\.json)\b"
    files = {file for page in PAGES for file in re.findall(pattern, page.read_text("utf-8"))}
    assert len(files) > 30
    assert [file for file in sorted(files) if not (ROOT / file).is_file()] == []


OUTSIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"]


@pytest.mark.parametrize("page", OUTSIDE)
def test_links_outside_of_the_site_lead_somewhere(page: str) -> None:
    """MkDocs checks those within `docs/`."""
    for link in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text("utf-8")):
        place, _, anchor = link.partition("#")
        if "://" in link or not place:
            continue
        target = (ROOT / page).parent / place
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.M)
            anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in anchors, link


def understand(words: list[str]) -> None:
    """Fail unless the program has this command and these options; short mentions may lack arguments."""
    command: Any = get_command(app)
    context = typer.Context(command, info_name="ttpfl")
    rest = words
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        said, command, rest = command.resolve_command(context, rest)
        context = typer.Context(command, info_name=said, parent=context)
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    for word in rest:
        if word.startswith("--"):
            assert word.partition("=")[0] in {*options, "--help"}, f"ttpfl {' '.join(words)} has no {word}"
    if words[:1] == ["run"] or words[:2] == ["recipe", "show"]:
        recipe = next((word for word in rest if not word.startswith("-")), "demo")
        assert recipe in names() or recipe.endswith(".toml") or recipe.isupper(), words


def test_options_that_are_not_there_are_found() -> None:
    understand(["train", "digits", "--rounds", "2", "--out", "runs"])
    with pytest.raises(AssertionError, match="has no --round"):
        understand(["train", "digits", "--round", "2"])
    with pytest.raises(Exception, match="No such command"):
        understand(["tren"])


def test_every_recipe_stands_in_the_page_about_the_paper() -> None:
    page = (ROOT / "docs" / "paper.md").read_text("utf-8")
    assert [recipe for recipe in names() if f"`{recipe}`" not in page] == []


class _Loaded(HTMLParser):
    """What a browser would fetch by itself to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        fetches = tag != "link" or {"stylesheet", "preconnect", "icon"} & set((said.get("rel") or "").split())
        if tag != "a" and fetches:
            self.places += [said[key] or "" for key in ("src", "href", "srcset", "data") if key in said]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'ttpfl[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # about the theme's future, not about our pages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "WARNING -" not in done.stderr, done.stderr
    return folder


def test_the_site_is_built_strictly_and_needs_no_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= len(PAGES) - 1
    for page in pages:
        parser = _Loaded()
        parser.feed(page.read_text("utf-8"))
        assert [place for place in parser.places if re.match(r"(https?:)?//", place)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import )["']?(https?:)?//""", sheet.read_text("utf-8")), sheet


def test_what_is_made_from_code_is_in_the_site(site: Path) -> None:
    for page, said in {
        "how-to/migrate.html": "ttpfl.core.privacy_record",
        "reference/methods.html": "atp-online",
        "reference/data-sets.html": "spoken-digits",
        "reference/cli.html": "ttpfl results picture",
        "reference/recipe-keys.html": "clients_per_domain",
        "reference/files.html": "checkpoint",
        "reference/api.html": "adapted_state_dict",
    }.items():
        text = (site / page).read_text("utf-8")
        assert said in text
        assert "made from code" not in text
        assert "&gt;&gt;&gt;" not in re.sub(r"<pre.*?</pre>", "", text, flags=re.S)  # examples are code
