"""What is too large, endless or implausible is refused before it costs anything."""

import os
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ttpfl
from ttpfl.data import from_huggingface
from ttpfl.data.manifest import read as read_manifest
from ttpfl.data.pictures import Unreadable, decode
from ttpfl.data.storage import read_images, read_npz
from ttpfl.errors import DataError, FederationError, LimitError, ModelError, RecipeError
from ttpfl.experiment.recipe import read as read_recipe
from ttpfl.models.files import load_model
from ttpfl.models.weights import read_weights
from ttpfl.rates import Rates
from ttpfl.reading import read_json


def peak_of(do: Callable[[], Any]) -> int:
    """The most memory that it took, in bytes."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def npz(path: Path, **shapes: tuple[int, ...]) -> Path:
    """An archive whose arrays of zeros are packed to almost nothing."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, shape in shapes.items():
            header = BytesIO()
            about = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(header, about)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(header.getvalue())
                for _ in range(int(np.prod(shape)) >> 20):
                    member.write(bytes(2**20))
    return path


def test_an_npz_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npz(tmp_path / "x.npz", x=(64, 1024, 1024))
    assert path.stat().st_size < 2**20
    monkeypatch.setenv("TTPFL_MAX_ARRAY_BYTES", str(2**25))

    def attempt() -> None:
        with pytest.raises(
            LimitError, match=r"x\.npz takes 671.* more than the limit of 33554432: set TTPFL_MAX"
        ):
            read_npz(path)

    assert peak_of(attempt) < 2**20
    monkeypatch.setenv("TTPFL_MAX_ARRAY_BYTES", str(2**27))
    assert read_images(path)[0].shape == (64, 1024, 1024)


def test_an_npz_that_announces_more_than_it_has(tmp_path: Path) -> None:
    header = BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (2**40,)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(DataError, match="announces 8796093022336 bytes but has 128"):
        read_npz(tmp_path / "x.npz")


def png(path: Path, width: int, height: int) -> Path:
    """A picture that says it is this large."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return path


def test_a_picture_that_decodes_to_too_much(tmp_path: Path) -> None:
    (found,) = decode([png(tmp_path / "a.png", 9000, 9000)], (32, 32))
    assert isinstance(found, Unreadable)
    assert (
        "takes 324000000 bytes, more than the limit of 268435456: set TTPFL_MAX_PICTURE_BYTES" in found.reason
    )


def test_a_model_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTPFL_MAX_MODEL_BYTES", "1000")
    torch.save({"w": torch.zeros(1000)}, tmp_path / "w.pth")
    with pytest.raises(LimitError, match="set TTPFL_MAX_MODEL_BYTES to allow more"):
        read_weights(tmp_path / "w.pth")
    packed = tmp_path / "packed.pth"
    with (
        zipfile.ZipFile(tmp_path / "w.pth") as old,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    monkeypatch.setenv("TTPFL_MAX_MODEL_BYTES", str(packed.stat().st_size + 100))
    with pytest.raises(LimitError, match=r"packed\.pth takes \d+ bytes"):
        read_weights(packed)


def test_a_limit_that_is_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTPFL_MAX_TEXT_BYTES", "10 GB")
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(
        LimitError, match="TTPFL_MAX_TEXT_BYTES is '10 GB': it must be a positive whole number"
    ):
        read_json(tmp_path / "a.json")


def no_picture(path: Path) -> None:
    (found,) = decode([path], None)
    assert isinstance(found, Unreadable)
    raise OSError(found.reason)


READERS: dict[str, Callable[[Path], Any]] = {
    "rates.safetensors": Rates.load,
    "model.safetensors": load_model,
    "weights.pth": read_weights,
    "own.npz": read_npz,
    "a.png": no_picture,
    "own.toml": read_recipe,
    "manifest.json": read_manifest,
}


@pytest.mark.parametrize("name", READERS)
def test_fifos_and_devices_are_not_read(name: str, tmp_path: Path) -> None:
    fifo, device = tmp_path / name, tmp_path / f"device-{name}"
    os.mkfifo(fifo)
    device.symlink_to("/dev/zero")
    for path in (fifo, device):
        with pytest.raises(OSError, match="not a regular file; FIFOs and devices are not read"):
            READERS[name](path)


def write_labels(folder: Path, labels: list[int]) -> Path:
    (folder / "source").mkdir()
    x = np.zeros((len(labels), 20, 20), np.uint8)
    np.savez(folder / "source" / "own.npz", x=x, y=np.array(labels))
    return folder


@pytest.mark.parametrize("highest", [255, 100_000, 2_000_000_000, 2**62])
def test_a_label_far_above_the_others_is_no_class(tmp_path: Path, highest: int) -> None:
    folder = write_labels(tmp_path, [0, 1, 2, highest])

    def attempt() -> None:
        with pytest.raises(DataError, match=f"the highest label is {highest}, but no image has the label 3 "):
            ttpfl.data.load("arrays", folder)

    assert peak_of(attempt) < 2**23


def test_classes_that_do_not_occur_can_be_listed(tmp_path: Path) -> None:
    folder = write_labels(tmp_path, [0, 2])
    with pytest.raises(
        DataError, match=r"no image has the label 1 .* list all classes with the option classes"
    ):
        ttpfl.data.load("arrays", folder)
    assert ttpfl.data.load("arrays", folder, classes=["a", "b", "c"]).facts.classes == ("a", "b", "c")
    with pytest.raises(DataError, match="number 1 is 2, but there are 2 classes"):
        ttpfl.data.load("arrays", folder, classes=["a", "b"])


def test_numbered_labels_of_a_table(tmp_path: Path) -> None:
    rows = {"image": np.zeros((3, 8, 8), np.uint8), "label": [0, 1, 9], "client": ["a", "a", "b"]}
    with pytest.raises(DataError, match=r"the highest label is 9, .* list all classes with classes="):
        from_huggingface(rows)
    names = [f"class {number}" for number in range(10)]
    assert from_huggingface(rows, classes=names).facts.classes == tuple(names)


def test_many_classes_take_no_time_that_grows_with_their_square() -> None:
    names = tuple(map(str, range(200_000)))
    assert len(ttpfl.models.Signature(names, (8, 8), (0, 0, 0), (1, 1, 1)).classes) == 200_000
    with pytest.raises(ModelError, match="the class '7' is there twice"):
        ttpfl.models.Signature((*names, "7"), (8, 8), (0, 0, 0), (1, 1, 1))


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000 + "]" * 5000, "{a=" * 900 + "1" + "}" * 900])
def test_toml_that_is_too_deep_or_has_huge_numbers(tmp_path: Path, value: str) -> None:
    from ttpfl.flower.folder import Federation
    from ttpfl.flower.site import Site

    path = tmp_path / "federation.toml"
    path.write_text(f"name = {value}\n")
    with pytest.raises(FederationError, match=r"federation\.toml cannot be read"):
        Federation.read(tmp_path)
    with pytest.raises(FederationError, match=r"federation\.toml: "):
        Site.read(path)
    with pytest.raises(RecipeError, match="is not sound TOML"):
        read_recipe(path)
    with pytest.raises(RecipeError):
        read_recipe("demo", changes=[f"train.rounds={value}"])
