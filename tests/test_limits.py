"""What is too large, endless or implausible is refused before it costs anything."""

import os
import struct
import subprocess
import sys
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
from PIL import Image

import ttpfl
from ttpfl.core.rates import Rates
from ttpfl.data import from_huggingface
from ttpfl.data.manifest import read as read_manifest
from ttpfl.data.pictures import Unreadable, as_rgb, decode
from ttpfl.data.storage import read_images, read_npz
from ttpfl.errors import DataError, FederationError, LimitError, ModelError, RecipeError
from ttpfl.experiment.recipe import read as read_recipe
from ttpfl.models.files import load_model
from ttpfl.models.weights import read_weights
from ttpfl.util.reading import read_bytes, read_json


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


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_npz_whose_stated_sizes_bound_nothing(tmp_path: Path, method: int) -> None:
    """A small array is stated; 64 MiB follow it inside the packed member."""
    small = BytesIO()
    np.save(small, np.zeros((4, 8, 8), np.uint8))
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", small.getvalue() + bytes(2**26))
    data = bytearray(path.read_bytes())
    for signature, checksum_at, size_at in ((b"PK\x03\x04", 14, 22), (b"PK\x01\x02", 16, 24)):
        begin = data.find(signature)
        struct.pack_into("<L", data, begin + checksum_at, zlib.crc32(small.getvalue()))
        struct.pack_into("<L", data, begin + size_at, len(small.getvalue()))
    path.write_bytes(data)

    def attempt() -> None:
        with pytest.raises(DataError, match=rf"zip method {method}: .* numpy\.savez_compressed"):
            read_npz(path)

    assert peak_of(attempt) < 2**20


def test_an_npz_that_announces_more_than_it_has(tmp_path: Path) -> None:
    header = BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": (2**40,)}
    np.lib.format.write_array_header_1_0(header, about)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(DataError, match="declares 8796093022336 bytes but has 128"):
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
    (found,) = decode([png(tmp_path / "a.png", 6000, 6000)], (32, 32))
    assert isinstance(found, Unreadable)
    assert (
        "takes 144000000 bytes, more than the limit of 134217728: set TTPFL_MAX_PICTURE_BYTES" in found.reason
    )


PEAK = """
import os, resource, sys
from pathlib import Path
from ttpfl.data.pictures import decode
os.cpu_count = lambda: 6
[_] = decode([Path(sys.argv[1])], (32, 32))  # whatever is imported late
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = list(decode([Path(sys.argv[2])] * 6, (32, 32)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, {one.shape for one in found})
"""


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_pictures_at_the_limit_take_turns(tmp_path: Path, mode: str) -> None:
    """Two are decoded at a time, on however many cores, with one more picture of their size each."""
    Image.new(mode, (8, 8)).save(tmp_path / "small.png")
    Image.new(mode, (4096, 2048)).save(tmp_path / "large.png", compress_level=1)
    command = [sys.executable, "-c", PEAK, str(tmp_path / "small.png"), str(tmp_path / "large.png")]
    environment = {**os.environ, "TTPFL_MAX_PICTURE_BYTES": str(2**25)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    peak, shapes = done.stdout.split(" ", 1)
    assert shapes == "{(32, 32, 3)}\n"
    assert int(peak) * 1024 < 2 * (2 * 2**25) + 2**25


def test_pictures_wait_for_room_and_all_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(20)]
    for number, path in enumerate(paths):
        Image.new("RGB", (10 + number % 3, 10), (number, 0, 0)).save(path)
    monkeypatch.setenv("TTPFL_MAX_PICTURE_BYTES", str(4 * 12 * 10))
    found = list(decode(paths, None))
    assert [one[0, 0, 0] for one in found if not isinstance(one, Unreadable)] == list(range(20))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "CMYK", "1"])
@pytest.mark.parametrize("size", [None, (20, 30)])
def test_bands_change_nothing(mode: str, size: tuple[int, int] | None) -> None:
    """The same bytes as from a whole picture at once."""
    random = np.random.default_rng(0)
    picture = Image.fromarray(random.integers(256, size=(700, 900, 4)).astype(np.uint8), "RGBA").convert(mode)
    if mode == "P":
        picture.info["transparency"] = 3
    whole = picture.convert("RGBA")
    whole = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole).convert("RGB")
    if mode in ("RGB", "L", "CMYK", "1"):
        whole = picture.convert("RGB")
    if size is not None:
        whole = whole.resize(size[::-1], Image.Resampling.BILINEAR)
    assert np.array_equal(as_rgb(picture, size), np.array(whole))


def test_a_file_that_has_more_than_it_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that grows meanwhile; files in /proc state that they are empty."""
    monkeypatch.setenv("TTPFL_MAX_TEXT_BYTES", "10")
    assert os.stat("/proc/self/status").st_size == 0
    with pytest.raises(LimitError, match="set TTPFL_MAX_TEXT_BYTES"):
        read_bytes("/proc/self/status")


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
    with pytest.raises(LimitError, match="TTPFL_MAX_TEXT_BYTES must be a positive integer, got '10 GB'"):
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
        with pytest.raises(
            DataError, match=f"the highest label is {highest}, but no sample has the label 3 "
        ):
            ttpfl.data.load("arrays", folder)

    assert peak_of(attempt) < 2**23


def test_classes_that_do_not_occur_can_be_listed(tmp_path: Path) -> None:
    folder = write_labels(tmp_path, [0, 2])
    with pytest.raises(
        DataError, match=r"no sample has the label 1 .* list all classes with the option classes"
    ):
        ttpfl.data.load("arrays", folder)
    assert ttpfl.data.load("arrays", folder, classes=["a", "b", "c"]).info.classes == ("a", "b", "c")
    with pytest.raises(DataError, match="number 1 is 2, but there are 2 classes"):
        ttpfl.data.load("arrays", folder, classes=["a", "b"])


def test_numbered_labels_of_a_table(tmp_path: Path) -> None:
    rows = {"image": np.zeros((3, 8, 8), np.uint8), "label": [0, 1, 9], "client": ["a", "a", "b"]}
    with pytest.raises(DataError, match=r"the highest label is 9, .* list all classes with classes="):
        from_huggingface(rows)
    names = [f"class {number}" for number in range(10)]
    assert from_huggingface(rows, classes=names).info.classes == tuple(names)


def test_many_classes_take_no_time_that_grows_with_their_square() -> None:
    names = tuple(map(str, range(200_000)))
    assert len(ttpfl.models.Signature(names, (8, 8), (0, 0, 0), (1, 1, 1)).classes) == 200_000
    with pytest.raises(ModelError, match="the class '7' occurs twice"):
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
    with pytest.raises(RecipeError, match="is not valid TOML"):
        read_recipe(path)
    with pytest.raises(RecipeError):
        read_recipe("demo", changes=[f"train.rounds={value}"])
