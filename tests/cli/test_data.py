"""`ttpfl data`, as a person would use it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import ttpfl
from tests.helpers.program import python
from ttpfl.cli import app
from ttpfl.data import registry
from ttpfl.data.corruptions import corrupt

SMALL = ["--set", "source_clients=6", "--set", "target_clients=2", "--set", "samples=40"]


def run(*words: object, code: int = 0) -> str:
    """What the command says: on stdout if it succeeds, on stderr if it does not."""
    result = CliRunner().invoke(app, ["data", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.stdout


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """Own data: the red client and the unlabelled blue one."""
    for place, colour, labels in (("source/red", 0, [0, 1] * 3), ("target/blue", 2, None)):
        x = np.zeros((6, 8, 8, 3), np.uint8)
        x[..., colour] = 200
        path = tmp_path / f"{place}.npz"
        path.parent.mkdir()
        np.savez(path, x=x, **({} if labels is None else {"y": np.array(labels)}))
    return tmp_path


def test_list_has_a_row_for_each_data_set(tmp_path: Path) -> None:
    (tmp_path / "digits5").mkdir()
    (tmp_path / "digits5" / "mnist.npz").touch()
    (tmp_path / "PACS").mkdir()  # empty
    lines = run("list", "--data-dir", tmp_path).splitlines()
    rows = {line.split()[0]: line for line in lines if line.split() and line.split()[0] in registry.names()}
    assert set(rows) == set(ttpfl.data.names())
    there = {name: row.split()[-1] for name, row in rows.items()}
    assert there["digits5"] == "yes"
    assert there["pacs"] == there["cifar10"] == there["arrays"] == "no"
    assert rows["digits"].rstrip().endswith("generated")
    assert "100         1   32x32" in rows["cifar100"]
    assert "MIT" in rows["fashion-mnist"]
    assert str(tmp_path) in lines[-1]


def test_info_says_all(tmp_path: Path) -> None:
    text = run("info", "cifar10", "--data-dir", tmp_path)
    (archive,) = ttpfl.data.dataset_info("cifar10").files
    for fact in ("airplane", "0.4914", archive.sha256, "toronto", "source_clients=240"):
        assert fact in text
    assert "image_size=224" in run("info", "pacs")
    assert "clients_per_domain=7" in run("info", "pacs")
    assert "validation=0.2, seed=0" in run("info", "folder")


def test_info_says_how_samples_are_normalised() -> None:
    data = "of the source clients' training data"
    assert data in run("info", "har")
    assert data in run("info", "table")
    assert "of images" not in run("info", "table")
    assert f"{data}; of images 0.5, 0.5, 0.5" in run("info", "arrays")


def test_everything_in_info_can_be_set(tmp_path: Path) -> None:
    (line,) = (line for line in run("info", "digits").splitlines() if line.startswith("clients"))
    given = [word for pair in line.removeprefix("clients").split(",") for word in ("--set", pair.strip())]
    said = run("make", "digits", *given, "--out", tmp_path / "all.json")
    assert said == run("make", "digits", "--out", tmp_path / "none.json").replace("none.json", "all.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "cifar11"], "did you mean 'cifar10'?"),
        (["show", "digits", "--shift", "labels"], "did you mean 'label'?"),
        (["show", "digits", "--shift", "domain"], "needs held_out=, one of: mnist, uci"),
        (["show", "digits", "--set", "sed=3"], "unknown population option 'sed'; did you mean 'seed'?"),
        (["show", "digits", "--set", "seed=3.5"], "--set seed must be an integer, got '3.5'"),
        (["show", "digits", "--set", "ratio=big"], "--set ratio must be a finite number, got 'big'"),
        (["show", "digits", "--set", "samples=x"], "--set samples must be an integer or none, got 'x'"),
        (["show", "digits", "--set", "replacement=1"], "--set replacement must be true or false, got '1'"),
        (["show", "digits", "--set", "seed"], "--set seed: it takes the form key=value"),
        (["show", "digits", "--seed", "1", "--set", "seed=2"], "seed is given twice"),
        (["show", "digits", "--option", "size=2"], "unknown option 'size' of digits. Available: seed"),
        (["show", "digits", "--set", "source_clients=9000"], "use fewer clients, a smaller ratio"),
        (["corruptions", "digits", "--image", "9297"], "digits has 9297 images: 0 to 9296"),
        (["check", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["download", "digits5"], "digits5 cannot be downloaded"),
        (["show", "cifar10", "--data-dir", "nowhere"], "the data directory nowhere does not exist"),
    ],
)
def test_errors_are_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = run(*words, code=1)
    assert text.startswith("error: ")
    assert text.count("\n") == 1
    assert message in text
    assert not list(tmp_path.iterdir())


def test_notes_are_told(tmp_path: Path) -> None:
    words = ("show", "digits", "--shift", "domain", "--held-out", "uci", "--set", "clients_per_domain=2000")
    assert "(in domain " in run(*words, "--out", tmp_path / "no.png", code=1)


def test_show_own_data(sites: Path) -> None:
    out = sites / "clients.png"
    assert run("show", "arrays", "--data-dir", sites, "--out", out) == f"{out} written\n"
    with Image.open(out) as image:
        colours = {colour: count for count, colour in image.convert("RGB").getcolors(2**24)}
    assert colours[200, 0, 0] > 1000
    assert colours[0, 0, 200] > 1000
    assert "unknown option 'shift' of your own clients" in run(
        "show", "arrays", "--shift", "label", "--data-dir", sites, code=1
    )


def test_only_png(tmp_path: Path) -> None:
    assert "does not end in .png" in run("show", "digits", "--out", tmp_path / "x.pdf", code=2)
    assert not list(tmp_path.iterdir())


def test_corruptions(tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    run("corruptions", "--image", 5000, "--seed", 3, "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]
    clean = ttpfl.data.load("digits").x[5000]
    with Image.open(out) as image:
        sheet = np.asarray(image)
    # 28 pixels are enlarged five times; gap 6, labels 170, header 28.
    found = sheet[28:, 170 + 5 * 146 :][:140:5, :140:5]
    assert np.array_equal(found, corrupt(clean[None], "gaussian_noise", 5, [3])[0])


def test_make_and_check(tmp_path: Path) -> None:
    def kept() -> set[Path]:
        return set((registry.data_directory() / "cache").glob("digits-corrupted-*.npy"))

    out = tmp_path / "manifest.json"
    words = ("make", "digits", "--shift", "hybrid", *SMALL, "--out", out)
    before = kept()
    first = run(*words, "--seed", 78, "--prepare")
    assert first.startswith(f"{out} written: digits, 6 source clients, 2 target clients, digest ")
    assert len(kept() - before) == 1
    said = json.loads(out.read_text())
    assert (len(said["source"]), len(said["target"])) == (6, 2)
    assert run(*words, "--seed", 78) == first.replace("written", "verified")
    assert run("check", out) == first.replace("written", "verified")
    assert "seed of the config was 78, it is 1" in run(*words, "--seed", 1, code=1)
    said["source"][2][4][0] += 1
    out.write_text(json.dumps(said))
    assert "is damaged (its checksum does not match)" in run("check", out, code=1)


def test_progress_is_told_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    ttpfl.data.federate(
        "digits",
        shift="feature",
        source_clients=5,
        target_clients=2,
        seed=77,
        samples=20,
        prepare=True,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(done, 7) for done in range(1, 8)]


def test_as_a_program(tmp_path: Path) -> None:
    code, out, err = python("-m", "ttpfl", "data", "info", "pac", TTPFL_DATA=str(tmp_path))
    assert (code, out) == (1, "")
    assert err.startswith("error: unknown data set 'pac'; did you mean 'pacs'?")
    assert err.count("\n") == 1


def test_json(tmp_path: Path) -> None:
    listed = json.loads(run("list", "--json", "--data-dir", tmp_path))
    assert [one["name"] for one in listed] == list(ttpfl.data.names())
    there = {one["name"]: one["there"] for one in listed}
    assert there["digits"]
    assert not there["cifar10"]
    pacs = json.loads(run("info", "pacs", "--json", "--data-dir", tmp_path))
    assert pacs == listed[[one["name"] for one in listed].index("pacs")]
    assert pacs["classes"] == list(ttpfl.data.dataset_info("pacs").classes)
    assert (pacs["image_size"], pacs["options"]) == ([224, 224], {"image_size": 224, "augmentation": ""})
    assert pacs["clients"]["clients_per_domain"] == 7
    out = tmp_path / "manifest.json"
    words = ("digits", "--shift", "label", *SMALL, "--json", "--out", out)
    made = json.loads(run("make", *words))
    assert (made["done"], made["source_clients"], made["target_clients"]) == ("written", 6, 2)
    assert json.loads(run("check", out, "--json")) == {**made, "done": "verified"}
