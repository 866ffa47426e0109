"""The readers of published formats, on small made-up files."""

import gzip
import hashlib
import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import ttpfl
from ttpfl.data import DatasetInfo
from ttpfl.data.datasets import cifar, fashion_mnist, pacs
from ttpfl.errors import DataError, DataMissingError

CIFARS = {"cifar10": (cifar.CIFAR10, cifar.TEN), "cifar100": (cifar.CIFAR100, cifar.HUNDRED)}


def made(rng: np.random.Generator, count: int, *shape: int) -> NDArray[np.uint8]:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)


def with_checksum(info: DatasetInfo, path: Path, index: int = 0) -> DatasetInfo:
    files = list(info.files)
    files[index] = replace(files[index], sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    return replace(info, files=tuple(files))


def cifar_files(layout: cifar.Layout, classes: int) -> tuple[dict[str, bytes], NDArray[np.uint8], list[int]]:
    """Files as the makers describe them: labels, then the red, green and blue plane."""
    rng = np.random.default_rng(0)
    files, images, labels = {}, [], []
    for name in layout.names:
        data = b""
        for image in made(rng, 4, 32, 32, 3):
            label = int(rng.integers(classes))
            planes = b"".join(image[:, :, channel].tobytes() for channel in range(3))
            data += bytes([19] * (layout.label_bytes - 1) + [label]) + planes
            images.append(image)
            labels.append(label)
        files[name] = data
    return files, np.stack(images), labels


def pack(path: Path, folder: str, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in reversed(files.items()):  # the order in the archive must not matter
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("name", CIFARS)
def test_cifar_from_folder_and_archive(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    info, layout = CIFARS[name]
    files, images, labels = cifar_files(layout, len(info.classes))
    folder = tmp_path / "extracted" / layout.folder
    folder.mkdir(parents=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    loaded = ttpfl.data.load(name, folder.parent)
    assert np.array_equal(loaded.x, images)
    assert loaded.y.tolist() == labels
    assert loaded.x.flags.c_contiguous
    assert "the complete set has 60000" in caplog.text

    archive = tmp_path / info.files[0].path
    pack(archive, layout.folder, files)
    unpacked = cifar.read(tmp_path, with_checksum(info, archive), layout)
    assert np.array_equal(unpacked.x, images)
    assert unpacked.y.tolist() == labels


@pytest.mark.parametrize("name", CIFARS)
def test_damaged_cifar_archives_are_named(name: str, tmp_path: Path) -> None:
    info, layout = CIFARS[name]
    files, *_ = cifar_files(layout, len(info.classes))
    archive = tmp_path / info.files[0].path
    pack(archive, layout.folder, files)
    with pytest.raises(DataError, match=rf"{archive} is damaged \(its sha256 is .*{info.files[0].sha256}"):
        ttpfl.data.load(name, tmp_path)
    with pytest.raises(DataError, match=f"{archive} is damaged"):  # never overwritten without being told
        ttpfl.data.load(name, tmp_path, download=True)
    pack(archive, "another-folder", files)
    with pytest.raises(DataError, match=f"has no {layout.folder}/{layout.names[0]}"):
        cifar.read(tmp_path, with_checksum(info, archive), layout)


@pytest.mark.parametrize("name", CIFARS)
def test_bad_cifar_files_are_named(name: str, tmp_path: Path) -> None:
    info, layout = CIFARS[name]
    files, *_ = cifar_files(layout, len(info.classes))
    folder = tmp_path / layout.folder
    folder.mkdir()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    last = folder / layout.names[-1]
    for content in (last.read_bytes()[:-1], b""):
        last.write_bytes(content)
        with pytest.raises(DataError, match=f"{last} has {len(content)} bytes"):
            ttpfl.data.load(name, tmp_path)
    last.write_bytes(bytes([255] * (layout.label_bytes + 3072)))
    with pytest.raises(DataError, match=f"labels of {name}: number .* is 255"):
        ttpfl.data.load(name, tmp_path)
    last.unlink()
    with pytest.raises(DataMissingError, match=f"there is no {last.name} in {folder}"):
        ttpfl.data.load(name, tmp_path)


def test_cifar_class_names() -> None:
    assert len(cifar.CIFAR10.classes) == 10
    assert len(cifar.CIFAR100.classes) == 100
    assert list(cifar.CIFAR100.classes) == sorted(cifar.CIFAR100.classes)


def idx(array: NDArray[np.uint8]) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def clothes(tmp_path: Path) -> tuple[Path, list[NDArray[np.uint8]]]:
    """The four files, not compressed, and what they hold."""
    rng = np.random.default_rng(0)
    arrays = [
        made(rng, 5, 28, 28),
        np.arange(5, dtype=np.uint8),
        made(rng, 3, 28, 28),
        np.arange(3, dtype=np.uint8) + 7,
    ]
    folder = tmp_path / fashion_mnist.FOLDER
    folder.mkdir()
    for name, array in zip(fashion_mnist.CHECKSUMS, arrays, strict=True):
        (folder / name.removesuffix(".gz")).write_bytes(idx(array))
    return folder, arrays


def test_fashion_mnist(clothes: tuple[Path, list[NDArray[np.uint8]]]) -> None:
    folder, (train_x, train_y, test_x, test_y) = clothes
    plain = ttpfl.data.load("fashion-mnist", folder.parent)
    for channel in range(3):
        assert np.array_equal(plain.x[..., channel], np.concatenate([train_x, test_x]))
    assert plain.y.tolist() == [*train_y, *test_y]

    info = fashion_mnist.FASHION_MNIST
    for index, name in enumerate(fashion_mnist.CHECKSUMS):
        path = folder / name
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
        path.with_suffix("").unlink()
        info = with_checksum(info, path, index)
    compressed = fashion_mnist.read(folder.parent, info)
    assert np.array_equal(compressed.x, plain.x)
    assert np.array_equal(compressed.y, plain.y)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged \(its sha256 is"):
        ttpfl.data.load("fashion-mnist", folder.parent)


def test_bad_fashion_mnist_files_are_named(clothes: tuple[Path, list[NDArray[np.uint8]]]) -> None:
    folder, _ = clothes
    path = folder / "t10k-images-idx3-ubyte"
    sound = path.read_bytes()
    for content in (sound[:-5], sound + b"x"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{path} has .* bytes of values, but its header says"):
            ttpfl.data.load("fashion-mnist", folder.parent)
    for content in (b"", sound[:7], b"\0\0\x0d\x03" + sound[4:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{path} is not an idx file"):
            ttpfl.data.load("fashion-mnist", folder.parent)
    path.unlink()
    with pytest.raises(DataMissingError, match="no fashion-mnist/t10k-images"):
        ttpfl.data.load("fashion-mnist", folder.parent)


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """Digits-5 in sizes and channels as they come."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "digits5"
    folder.mkdir()
    shapes = {
        "mnist": (28, 28),
        "usps": (16, 16),
        "svhn": (32, 32, 3),
        "syn": (32, 32, 3),
        "mnist_m": (28, 28, 3),
    }
    for count, (name, shape) in enumerate(shapes.items(), 2):
        np.savez(folder / f"{name}.npz", x=made(rng, count, *shape), y=np.arange(count, dtype=np.uint8))
    return folder


def test_digits5(five: Path) -> None:
    loaded = ttpfl.data.load("digits5", five.parent)
    assert loaded.info.domains == ("mnist", "svhn", "usps", "syn", "mnist_m")
    assert np.bincount(loaded.domain).tolist() == [2, 4, 3, 5, 6]
    assert loaded.y[loaded.domain == 4].tolist() == [0, 1, 2, 3, 4, 5]
    with np.load(five / "mnist.npz") as mnist, np.load(five / "mnist_m.npz") as mnist_m:
        assert np.array_equal(loaded.x[:2], np.repeat(mnist["x"][..., None], 3, 3))  # not resampled
        assert np.array_equal(loaded.x[loaded.domain == 4], mnist_m["x"])
    with np.load(five / "usps.npz") as usps:
        means = usps["x"].mean((1, 2))
    assert np.abs(loaded.x[loaded.domain == 2].mean((1, 2, 3)) - means).max() < 6  # the same pictures


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((2, 8, 8), np.float32), "y": np.zeros(2, int)}, "x in .* is float32"),
        ({"x": np.zeros((2, 8, 8, 4), np.uint8), "y": np.zeros(2, int)}, r"x in .* \(2, 8, 8, 4\)"),
        ({"x": np.zeros((2, 0, 8), np.uint8), "y": np.zeros(2, int)}, r"x in .* \(2, 0, 8\)"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": np.zeros(3, int)}, "must be 2 integers"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": np.zeros(2)}, "y in .* is float64"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": np.array([1, 10])}, "number 1 is 10"),
        ({"x": np.zeros((2, 8, 8), np.uint8)}, "no labels 'y'"),
        ({"images": np.zeros((2, 8, 8), np.uint8)}, r"no array 'x', only \['images'\]"),
        ({"x": np.array([{"a": "b"}, None])}, "not a valid npz file of plain arrays"),
    ],
)
def test_bad_digits5_files_are_named(five: Path, arrays: dict[str, NDArray[np.uint8]], message: str) -> None:
    np.savez(five / "svhn.npz", **arrays)
    with pytest.raises(DataError, match=message) as error:
        ttpfl.data.load("digits5", five.parent)
    assert "svhn.npz" in str(error.value)


def test_damaged_digits5_files_are_named(five: Path) -> None:
    sound = (five / "syn.npz").read_bytes()
    flipped = bytearray(sound)
    flipped[len(sound) // 2] ^= 255
    for content in (b"", b"junk", sound[: len(sound) // 2], bytes(flipped)):
        (five / "syn.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"syn\.npz is not a valid npz file"):
            ttpfl.data.load("digits5", five.parent)
    with open(five / "syn.npz", "wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match=r"syn\.npz is not a valid npz file of plain arrays \(not an archive"):
        ttpfl.data.load("digits5", five.parent)


@pytest.fixture
def art(tmp_path: Path) -> Path:
    """PACS with two pictures per folder, each of one colour that says where it belongs."""
    for d, domain in enumerate(pacs.PACS.domains):
        for c, name in enumerate(pacs.PACS.classes):
            folder = tmp_path / "PACS" / domain / name
            folder.mkdir(parents=True)
            for number, (size, suffix) in enumerate([((20, 30), "jpg"), ((17, 17), "png")]):
                Image.new("RGB", size, (60 * d, 30 * c, 200 * number)).save(folder / f"pic_{number}.{suffix}")
            (folder / "Thumbs.db").write_text("not a picture")
    return tmp_path


def test_pacs(art: Path) -> None:
    loaded = ttpfl.data.load("pacs", art, image_size=8)
    assert loaded.info.image_size == (8, 8)
    assert np.bincount(loaded.domain).tolist() == [14] * 4
    assert np.bincount(loaded.y).tolist() == [8] * 7
    expected = np.stack([60 * loaded.domain, 30 * loaded.y, 200 * (np.arange(56) % 2)], 1)
    assert np.abs(loaded.x.mean((1, 2)) - expected).max() < 4  # jpg is not exact
    assert ttpfl.data.load("pacs", art, image_size=(6, 9)).x.shape == (56, 6, 9, 3)
    for wrong in (0, -3, (2, 3, 4), 2.5, "8"):
        with pytest.raises(
            DataError, match="image_size must be a positive integer, or height and width, got"
        ):
            ttpfl.data.load("pacs", art, image_size=wrong)


def test_pacs_cache(art: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ttpfl.data.load("pacs", art, image_size=8)
    (kept,) = (art / "cache").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(pacs, "decode", None)  # must not be needed
        again = ttpfl.data.load("pacs", art, image_size=8)
    assert np.array_equal(again.x, first.x)
    again.x[:] = 0  # its own copy: neither the file nor the next reader sees it
    assert np.array_equal(ttpfl.data.load("pacs", art, image_size=8).x, first.x)

    for content in (b"", kept.read_bytes()[:500], b"junk" * 1000):
        kept.write_bytes(content)  # cut short behind our back: made again
        assert np.array_equal(ttpfl.data.load("pacs", art, image_size=8).x, first.x)

    picture = art / "PACS" / "photo" / "dog" / "pic_0.jpg"
    Image.new("RGB", (5, 5), "white").save(picture)
    changed = ttpfl.data.load("pacs", art, image_size=8)
    assert (changed.x != first.x).any(axis=(1, 2, 3)).sum() == 1


def test_a_half_written_cache_is_never_used(art: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(file: io.BufferedWriter, arr: NDArray[np.uint8]) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            ttpfl.data.load("pacs", art, image_size=8)
    assert not list((art / "cache").iterdir())
    assert len(ttpfl.data.load("pacs", art, image_size=8)) == 56


def test_unreadable_and_missing_pacs_pictures_are_named_at_once(art: Path) -> None:
    bad = [art / "PACS" / "sketch" / "horse" / "pic_1.png", art / "PACS" / "cartoon" / "dog" / "pic_0.jpg"]
    for path in bad:
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(DataError, match="2 images cannot be read") as error:
        ttpfl.data.load("pacs", art, image_size=8)
    assert all(str(path) in str(error.value) for path in bad)
    assert not (art / "cache").exists()
    for path in (art / "PACS" / "photo" / "person").iterdir():
        path.unlink()
    with pytest.raises(DataMissingError, match=r"no images in .*photo/person"):
        ttpfl.data.load("pacs", art, image_size=8)
