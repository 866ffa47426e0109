"""Names, directories, downloads and what is said when something is not there."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Annotated

import numpy as np
import pytest

import ttpfl
from ttpfl.data import DatasetInfo, Images, registry
from ttpfl.data.images import File
from ttpfl.errors import DataError, DataMissingError

CONTENT = bytes(range(200)) * 5


class _Quiet(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/elsewhere":
            return super().do_GET()
        self.send_response(302)
        self.send_header("Location", "http://example.org/blob.bin")
        self.end_headers()
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "blob.bin").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def blob(directory: Path, level: int = 0) -> Images:
    """A data set of one file: every byte is a gray image of one pixel."""
    path = directory / "blobs" / "blob.bin"
    if not path.exists():
        raise DataMissingError(f"there is no {path}")
    x = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 1, 1, 1).repeat(3, 3)
    return Images(x, np.zeros(len(x), np.int64), np.zeros(len(x), np.int64), registry.dataset_info("blob"))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    register(server + "/blob.bin")


def register(url: str, sha256: str = hashlib.sha256(CONTENT).hexdigest()) -> None:
    files = (File("blobs/blob.bin", url, sha256),)
    half = (0.5, 0.5, 0.5)
    size = (1, 1)
    registry._entries.pop("blob", None)
    registry.dataset(
        DatasetInfo(
            "blob", "Bytes", ("a",), ("b",), size, "gray", half, half, "", "", "blobs/blob.bin", files
        )
    )(blob)


@pytest.mark.parametrize(
    ("wrong", "right"), [("cifar11", "cifar10"), ("Digits-5", "digits5"), ("fashion_mnist", "fashion-mnist")]
)
def test_unknown_names_list_the_known_ones_and_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(DataError, match=f"'{wrong}'; did you mean '{right}'") as error:
        ttpfl.data.load(wrong)
    assert all(name in str(error.value) for name in ttpfl.data.names())
    with pytest.raises(DataError, match="Available: arrays"):
        ttpfl.data.dataset_info("zzz")


def test_unknown_options_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match="unknown option 'sed' of digits; did you mean 'seed'\\? Available: seed, augmentation",
    ):
        ttpfl.data.load("digits", sed=3)
    with pytest.raises(DataError, match=r"unknown option 'seed' of cifar10\. Available: augmentation"):
        ttpfl.data.load("cifar10", tmp_path, seed=3)


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("digits", "seed", "abc", "seed must be a non-negative integer, got 'abc'"),
        ("digits", "seed", -1, "seed must be a non-negative integer, got -1"),
        ("digits", "augmentation", 0, "unknown augmentation 0"),
        ("pacs", "image_size", True, "image_size must be a positive integer, or height and width, got True"),
        ("folder", "skip_unreadable", "no", "skip_unreadable must be true or false, got 'no'"),
        ("arrays", "classes", 3, "classes must be a list of names, in the order of their labels, got 3"),
        (
            "arrays",
            "classes",
            "cat",
            "classes must be a list of names, in the order of their labels, got 'cat'",
        ),
    ],
)
def test_values_that_options_cannot_take_are_refused_before_files_are_looked_for(
    name: str, option: str, value: object, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        ttpfl.data.load(name, tmp_path / "nowhere", **{option: value})


def test_a_data_set_of_ones_own_checks_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def even(name: str, value: int) -> None:
        if value % 2:
            raise DataError(f"{name} is odd")

    def own(directory: Path, size: Annotated[int, "pixels", even] = 2, free: str = "") -> Images:
        return ttpfl.data.load("digits")

    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    registry.dataset(replace(ttpfl.data.dataset_info("digits"), name="own"))(own)
    assert len(ttpfl.data.load("own", size=4, free=3)) == 9297  # what says nothing of a check has none
    with pytest.raises(DataError, match="size is odd"):
        ttpfl.data.load("own", size=3)


def test_a_name_is_given_once() -> None:
    with pytest.raises(DataError, match="already a data set 'digits'"):
        registry.dataset(ttpfl.data.dataset_info("digits"))(blob)


def test_directory_is_argument_then_variable_then_user_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTPFL_DATA", "/variable")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert registry.data_directory("/argument") == Path("/argument")
    assert registry.data_directory() == Path("/variable")
    monkeypatch.delenv("TTPFL_DATA")
    assert registry.data_directory() == Path("/xdg/ttpfl")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert registry.data_directory() == Path.home() / ".cache" / "ttpfl"


@pytest.mark.parametrize("name", ["arrays", "folder"])
def test_own_data_has_no_usual_place(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTPFL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for read in (ttpfl.data.load, ttpfl.data.federate):
        with pytest.raises(DataMissingError, match=rf"^{name} is your own data: pass data_dir=, a directory"):
            read(name)


@pytest.mark.parametrize("name", [name for name in ttpfl.data.names() if name not in ("digits", "waves")])
def test_missing_files_say_what_to_put_where(name: str, tmp_path: Path) -> None:
    info = ttpfl.data.dataset_info(name)
    with pytest.raises(DataMissingError) as error:
        ttpfl.data.load(name, tmp_path)
    text = str(error.value)
    assert info.instructions in text
    assert str(tmp_path) in text
    assert "TTPFL_DATA" in text
    assert ("download=True" in text) == bool(info.files)
    assert ("`ttpfl data info" in text) == bool(info.files)  # addresses and hashes would hide the rest
    assert "://" not in text or not info.files
    assert not list(tmp_path.iterdir())  # nothing was made or fetched


def test_what_cannot_be_downloaded_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"pacs cannot be downloaded\. Put the images as PACS/"):
        ttpfl.data.load("pacs", tmp_path, download=True)


@pytest.mark.usefixtures("registered")
def test_download_only_when_asked(tmp_path: Path) -> None:
    with pytest.raises(DataMissingError, match=r"load\('blob', download=True\)"):
        ttpfl.data.load("blob", tmp_path)
    images = ttpfl.data.load("blob", tmp_path, download=True)
    assert images.x[:, 0, 0, 0].tobytes() == CONTENT
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == ["blob.bin"]
    assert len(ttpfl.data.load("blob", tmp_path)) == len(CONTENT)


@pytest.mark.usefixtures("registered")
def test_a_damaged_download_is_not_kept(tmp_path: Path, server: str) -> None:
    register(server + "/blob.bin", sha256="0" * 64)
    with pytest.raises(
        DataError, match=r"blob\.bin is damaged \(its sha256 is .*was deleted.*Put blobs/blob\.bin into"
    ):
        ttpfl.data.load("blob", tmp_path, download=True)
    assert not list((tmp_path / "blobs").iterdir())


@pytest.mark.usefixtures("registered")
def test_nothing_is_fetched_without_https(tmp_path: Path, server: str) -> None:
    for url in ("http://example.org/blob.bin", "ftp://127.0.0.1/blob.bin", "file:///etc/hostname"):
        register(url)
        with pytest.raises(DataError, match="does not start with https"):
            ttpfl.data.load("blob", tmp_path, download=True)
    register(f"{server}/elsewhere")
    with pytest.raises(DataError, match=r"http://example\.org/blob\.bin does not start with https"):
        ttpfl.data.load("blob", tmp_path, download=True)
    assert not list((tmp_path / "blobs").iterdir())


@pytest.mark.usefixtures("registered")
def test_no_network_says_what_to_put_where(tmp_path: Path, server: str) -> None:
    for url in (server + "/other.bin", "http://127.0.0.1:9/blob.bin"):  # not found; nobody listens
        register(url)
        with pytest.raises(DataError, match=r"could not be downloaded to .*Put blobs/blob\.bin into"):
            ttpfl.data.load("blob", tmp_path, download=True)
        assert not list((tmp_path / "blobs").iterdir())


@pytest.mark.parametrize("name", ttpfl.data.names())
def test_facts_are_complete(name: str) -> None:
    info = ttpfl.data.dataset_info(name)
    assert info.name == name
    assert info.title
    assert info.licence
    assert info.instructions
    assert len(set(info.classes)) == len(info.classes)
    assert all(0 < value < 1 for value in info.mean + info.std)
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in info.files)
    assert all(file.url.startswith("https://") for file in info.files)


def test_images_must_fit_their_facts() -> None:
    info = ttpfl.data.dataset_info("digits")
    x, zeros = np.zeros((2, 28, 28, 3), np.uint8), np.zeros(2, np.int64)
    for bad in (
        (x[:, :27], zeros, zeros),
        (x.astype(np.float32), zeros, zeros),
        (x, zeros[:1], zeros),
        (x, zeros + 10, zeros),
        (x, zeros.astype(np.int32), zeros),
        (x, zeros, zeros + 4),
    ):
        with pytest.raises(DataError, match="digits"):
            Images(*bad, info)
