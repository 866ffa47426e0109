"""What stands around the code: container, hooks, templates and citation are sound and name what is there."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ttpfl import __version__

ROOT = Path(__file__).resolve().parents[1]


def test_the_container_copies_what_is_there() -> None:
    copied = [
        name
        for line in re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
        for name in line.split()
    ]
    kept = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert sorted(copied) == sorted(kept)
    assert all((ROOT / name).exists() for name in copied)


def test_the_container_has_all_that_the_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "LICENSE"]
    kept = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.M)
    assert {Path(name).parts[0] for name in needed} <= set(kept)


def installed_by(*words: str) -> list[str]:
    """What `make` would give to pip on a fresh clone, one command after the other."""
    make = shutil.which("make") or pytest.skip("make is not installed: apt install make")
    command = [make, "--dry-run", "--always-make", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return re.findall(r"pip install --quiet *(.*?) *$", done.stdout, re.M)


def test_make_installs_what_its_targets_need_and_torch_once() -> None:
    locked = "--require-hashes --no-deps -r requirements/"
    demo = [
        f"{locked}torch-cpu.lock 2> /dev/null || .venv/bin/python -m pip install --quiet  {locked}torch.lock",
        f"{locked}demo.lock",
        "-c constraints.txt \"$(grep '^torch==' constraints.txt)\"",
        "--no-deps --no-build-isolation -e .",
    ]
    assert installed_by("demo") == demo
    assert installed_by("test") == [*demo, f"{locked}dev.lock"]
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    lines = installed_by("demo", f"TORCH_INDEX={index.split()[1]}")
    assert len(lines) == len(demo)
    assert all(line.startswith(index) for line in lines)
    interop = installed_by("test-interop")
    assert interop[0] == demo[0].replace(".venv", ".venv-interop")
    assert interop[1] == f"{locked}interop.lock"
    assert interop[2] == "-c requirements/interop.txt torch torchvision"


def test_the_locks_agree_with_each_other_and_with_the_constraints() -> None:
    def pinned(path: str) -> dict[str, str]:
        found = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / path).read_text(), re.M)
        return {canonicalize_name(name): version for name, version in found}

    dev, constraints = pinned("requirements/dev.lock"), pinned("constraints.txt")
    assert pinned("requirements/demo.lock").items() <= dev.items()
    both = dev.keys() & constraints.keys()
    assert len(both) > 20
    assert [name for name in both if dev[name] != constraints[name]] == []


def test_hooks_are_programs_of_the_environment() -> None:
    path = ROOT / ".pre-commit-config.yaml"
    reason = "pre-commit is not installed: pip install pre-commit"
    pytest.importorskip("pre_commit.clientlib", reason=reason).load_config(path)  # it is sound
    for repository in yaml.safe_load(path.read_text())["repos"]:
        assert repository["repo"] == "local"  # nothing is fetched
        for hook in repository["hooks"]:
            assert hook["language"] in ("system", "fail")


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_templates_are_sound(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.stem == "config":
        return
    assert form.keys() >= {"name", "description", "body"}
    for part in form["body"]:
        assert part["type"] in ("textarea", "input", "markdown")
        assert "label" in part["attributes"] or part["type"] == "markdown"


def test_the_workflow_runs_what_make_has_with_actions_that_cannot_change() -> None:
    text = (ROOT / ".github" / "workflows" / "checks.yml").read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"}
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.M)
    steps = [step for job in flow["jobs"].values() for step in job["steps"]]
    for command in (step["run"] for step in steps if "run" in step):
        assert command.split()[0] == "make"
        assert command.split()[1] in targets
    for action in (step["uses"] for step in steps if "uses" in step):
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action)
        assert len(set(re.findall(rf"{re.escape(action)}  # (v[0-9.]+)", text))) == 1


def pinned(name: str) -> dict[str, str]:
    """Versions by package, whichever way its name is written."""
    found = re.findall(r"^([A-Za-z][\w.-]*)==([\w.]+)", (ROOT / name).read_text(), re.M)
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in found}


def test_what_is_locked_are_the_versions_that_tests_run_with() -> None:
    known, locked = (
        pinned("constraints.txt"),
        pinned("requirements/dev.lock") | pinned("requirements/torch.lock"),
    )
    assert locked.pop("setuptools")  # there is one in every environment
    assert locked == known
    assert pinned("requirements/torch-cpu.lock") == {"torch": known["torch"]}  # with +cpu
    run = pinned("requirements/run.lock")
    assert run.pop("setuptools")
    assert run.items() < known.items()


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda path: path.name)
def test_everything_locked_has_hashes(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    starts = [number for number, line in enumerate(lines) if not line.startswith(" ")]
    assert starts
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        assert "==" in lines[start]
        assert end > start + 1
        for line in lines[start + 1 : end]:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)


def test_pinned_versions_are_within_what_is_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = pinned("requirements/interop.txt") | pinned("constraints.txt")
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(one for extra in extras for one in extra)]:
        needed = Requirement(text)
        if needed.name != project["name"]:
            assert known[needed.name.lower()] in needed.specifier, text


def test_other_libraries_are_tested_with_what_the_other_tests_have() -> None:
    interop, known = pinned("requirements/interop.txt"), pinned("constraints.txt")
    assert all(interop[name] == known[name] for name in ("torch", "numpy", "safetensors", "pytest"))
    built_for_each_other = {name: interop[name] for name in ("torch", "torchvision")}
    assert pinned("requirements/interop.lock") | built_for_each_other == interop
    page = (ROOT / "docs" / "how-to" / "interop.md").read_text()
    tested = re.findall(r"^\| ([\w.-]+) \| ([\d.]+) \|", page, re.M)
    assert len(tested) > 5
    assert [(name, interop[canonicalize_name(name)]) for name, _ in tested] == tested


def test_the_paper_is_cited() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper = cited["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Bao", "Wei", "Wang", "He"]


def test_citation_and_changelog_are_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == __version__
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert heads[:2] == ["Unreleased", f"{__version__} ({cited['date-released']})"]
