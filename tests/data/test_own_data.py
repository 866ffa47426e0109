"""The user's own data: folders of pictures, arrays, and Hugging Face data sets."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import ttpfl
from ttpfl.data import from_huggingface
from ttpfl.errors import DataError, DataMissingError


def picture(path: Path, colour: Any = "red", size: tuple[int, int] = (6, 4), mode: str = "RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)
    return path


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    for client, classes in {"north": ("cat", "dog"), "west": ("dog",)}.items():
        for name in classes:
            for number in range(2):
                picture(tmp_path / "source" / client / name / f"{number}.png", (10 * number, 0, 0))
    picture(tmp_path / "target" / "south" / "a.png")
    picture(tmp_path / "target" / "east" / "dog" / "a.PNG")
    return tmp_path


def test_folder(sites: Path) -> None:
    own = ttpfl.data.load("folder", sites)
    assert own.info.classes == ("cat", "dog")
    assert own.info.image_size == (4, 6)
    assert list(own.source) == ["north", "west"]
    assert own.source["north"].x.shape == (4, 4, 6, 3)
    assert own.source["north"].x[:, 0, 0, 0].tolist() == [0, 10, 0, 10]
    assert own.source["north"].y is not None
    assert own.source["north"].y.tolist() == [0, 0, 1, 1]
    assert own.target["south"].y is None
    assert own.target["east"].y is not None
    assert own.target["east"].y.tolist() == [1]
    assert ttpfl.data.load("folder", sites, image_size=5).source["west"].x.shape == (2, 5, 5, 3)


def test_numbered_classes_keep_their_order(tmp_path: Path) -> None:
    for label in (10, 9, 0):
        picture(tmp_path / "source" / "one" / str(label) / "a.png")
    own = ttpfl.data.load("folder", tmp_path)
    assert own.info.classes == ("0", "9", "10")
    assert own.target == {}


def test_unreadable_pictures_are_all_named_at_once_or_skipped(
    sites: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [sites / "source" / "north" / "cat" / "x.png", sites / "target" / "south" / "y.jpg"]
    bad[0].write_bytes(b"this is no picture")
    bad[1].write_bytes((sites / "target" / "south" / "a.png").read_bytes()[:40])
    deep = sites / "source" / "west" / "dog" / "z.png"
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(deep)
    with pytest.raises(DataError, match=r"3 images cannot be read.*skip_unreadable=True") as error:
        ttpfl.data.load("folder", sites)
    assert all(str(path) in str(error.value) for path in [*bad, deep])
    assert "more than 8 bits" in str(error.value)
    own = ttpfl.data.load("folder", sites, skip_unreadable=True)
    assert len(own.source["north"].x) == 4
    assert str(bad[0]) in caplog.text


def test_pictures_of_all_kinds_become_rgb(tmp_path: Path) -> None:
    home = tmp_path / "source" / "one" / "thing"
    picture(home / "0.png", 7, mode="L")
    picture(home / "1.png", (9, 9, 9, 0), mode="RGBA")  # invisible: the white below shows
    picture(home / "2.png", 1, mode="1")
    palette = Image.new("P", (6, 4), 0)
    palette.putpalette([1, 2, 3])
    palette.save(home / "3.png", transparency=b"\xff")
    turned = Image.new("RGB", (4, 6))
    turned.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned by a quarter
    turned.save(home / "4.png", exif=exif)
    x = ttpfl.data.load("folder", tmp_path).source["one"].x
    assert x.shape == (5, 4, 6, 3)
    assert x[:4, 0, 0].tolist() == [[7, 7, 7], [255, 255, 255], [255, 255, 255], [1, 2, 3]]
    assert x[4, 0, -1].tolist() == [255, 0, 0]


def test_bad_folders_are_named(sites: Path) -> None:
    def refused(match: str) -> None:
        with pytest.raises(DataError, match=match):
            ttpfl.data.load("folder", sites)

    extra = picture(sites / "source" / "north" / "cat" / "big.png", size=(9, 9))
    refused(r"2 sizes, such as .*9x9 .*big\.png.*image_size=")
    extra.unlink()
    extra = picture(sites / "source" / "north" / "loose.png")
    refused(r"loose\.png is not in the folder of a class")
    extra.unlink()
    extra = picture(sites / "target" / "east" / "loose.png")
    refused(r"loose\.png is not in the folder of a class")
    extra.unlink()
    extra = picture(sites / "target" / "east" / "bird" / "a.png")
    refused(r"the class 'bird', which no source client has \(cat, dog\)")
    extra.unlink()
    (sites / "target" / "empty").mkdir()
    refused("empty has no images")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for part, client, labels in [
        ("source", "north", [0, 2, 1]), ("source", "west", [1, 1]), ("target", "south", None),
    ]:  # fmt: skip
        (tmp_path / part).mkdir(exist_ok=True)
        arrays = {"x": rng.integers(0, 256, (3 if labels is None else len(labels), 5, 7), dtype=np.uint8)}
        if labels is not None:
            arrays["y"] = np.array(labels)
        np.savez(tmp_path / part / f"{client}.npz", **arrays)
    return tmp_path


def test_arrays(files: Path) -> None:
    own = ttpfl.data.load("arrays", files)
    assert own.info.classes == ("0", "1", "2")
    assert own.info.image_size == (5, 7)
    assert {name: client.x.shape for name, client in own.source.items()} == {
        "north": (3, 5, 7, 3),
        "west": (2, 5, 7, 3),
    }
    assert own.target["south"].y is None
    with np.load(files / "source" / "north.npz") as north:
        assert np.array_equal(own.source["north"].x[..., 1], north["x"])
    assert ttpfl.data.load("arrays", files, image_size=4).target["south"].x.shape == (3, 4, 4, 3)
    assert ttpfl.data.load("arrays", files, classes=["a", "b", "c"]).info.classes == ("a", "b", "c")


def test_bad_arrays_are_named(files: Path) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(DataError, match=match):
            ttpfl.data.load("arrays", files, **options)

    refused("labels of source client 'north': number 1 is 2, but there are 2 classes", classes=["a", "b"])
    west, sound = files / "source" / "west.npz", (files / "source" / "west.npz").read_bytes()
    x = np.zeros((2, 5, 7), np.uint8)
    np.savez(west, x=x)
    refused("source client 'west' has no labels")
    np.savez(west, x=x[:0], y=np.zeros(0, int))
    refused("source client 'west' has no images")
    np.savez(west, x=x[:, :4], y=np.zeros(2, int))
    refused("source client 'west' has images of .*image_size=")
    np.savez(west, x=x, y=np.array([-1, 0]))
    refused("labels of source client 'west': number 0 is -1")
    np.savez(west, x=np.array([object()]), y=np.zeros(1, int))
    refused(r"west\.npz is not a valid npz file of plain arrays")
    west.write_bytes(sound[:100])
    refused(r"west\.npz is not a valid npz file")
    for path in (files / "source").iterdir():
        path.unlink()
    with pytest.raises(
        DataMissingError, match=r"no npz files or folders with x\.npy in .*source.*source/<client>\.npz"
    ):
        ttpfl.data.load("arrays", files)


class Table:
    """As much of `datasets.Dataset` as is used: columns by name, their names, and features."""

    def __init__(self, names: list[str] | None = None, **columns: list[Any]) -> None:
        self.columns, self.column_names = columns, list(columns)
        self.features = {"label": SimpleNamespace(names=names)} if names else None

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


def encoded(level: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (6, 4), (level, level, level)).save(buffer, "png")
    return buffer.getvalue()


def test_huggingface_pictures_with_class_names(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", (30, 30, 30))
    images = [
        Image.new("L", (6, 4), 10),
        {"bytes": encoded(20), "path": None},
        {"bytes": None, "path": str(path)},
        np.full((4, 6, 1), 40).tolist(),
        np.full((4, 6, 3), 50, np.uint8),
    ]
    table = Table(["cat", "dog", "owl"], image=images, label=[1, 0, 1, -1, -1], client=[7, 7, 8, 9, 9])
    own = from_huggingface(table, target_clients=[9])
    assert own.info.classes == ("cat", "dog", "owl")
    assert list(own.source) == ["7", "8"]
    assert own.source["7"].x[:, 0, 0].tolist() == [[10] * 3, [20] * 3]
    assert own.source["8"].x[:, 3, 5].tolist() == [[30] * 3]
    assert own.source["7"].y is not None
    assert own.source["7"].y.tolist() == [1, 0]
    assert own.target["9"].x[:, 0, 0, 0].tolist() == [40, 50]
    assert own.target["9"].y is None
    assert from_huggingface(table, target_clients=[9], image_size=3).info.image_size == (3, 3)


def test_huggingface_without_features() -> None:
    x = list(np.zeros((3, 4, 4), np.uint8))
    named = from_huggingface(Table(i=x, l=["b", "a", "b"], c=["p", "p", "q"]), "i", "l", "c")
    assert named.info.classes == ("a", "b")
    assert named.source["p"].y is not None
    assert named.source["p"].y.tolist() == [1, 0]
    numbered = from_huggingface(Table(image=x, label=[0, 2, 1], client=["p", "p", "q"]), target_clients=["q"])
    assert numbered.info.classes == ("0", "1", "2")
    assert numbered.target["q"].y is not None


def test_bad_huggingface_data_is_named() -> None:
    x: list[NDArray[np.uint8]] = list(np.zeros((3, 4, 4), np.uint8))

    def refused(match: str, target_clients: tuple[str, ...] = (), **columns: list[Any]) -> None:
        table = Table(**{"image": x, "label": [0, 1, 1], "client": ["p", "p", "q"], **columns})
        with pytest.raises(DataError, match=match):
            from_huggingface(table, target_clients=target_clients)

    refused("no row has the client 'z'", target_clients=("z",))
    refused("row 1 of column 'image' is not an image", image=[x[0], "what", x[2]])
    refused("row 0 of column 'image' is not an image: float64", image=[np.zeros((4, 4)), *x[1:]])
    refused("client 'p' has images of several sizes", image=[x[0], x[1][:2], x[2]])
    refused("source client 'q' has images of", image=[*x[:2], x[2][:2]])
    refused("client 'p' has 1 images without and 1 with a label", label=[None, 1, 0])
    refused("source client 'q' has no labels", label=[0, 1, None])
    refused("label 1.5 is neither", label=[0, 1.5, 1])
    with pytest.raises(DataError, match=r"unknown column 'site'\. Available: image, label"):
        from_huggingface(Table(image=x, label=[0, 1, 1]), client_column="site")
