"""Fashion-MNIST: four idx files, compressed or not."""

import gzip
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo, File, Images
from ttpfl.data.pictures import resized
from ttpfl.data.registry import dataset
from ttpfl.data.storage import verify
from ttpfl.errors import DataError, DataMissingError

FOLDER = "fashion-mnist"
# A commit of the authors' repository, because their server has no https.
SOURCE = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/"
    "b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion"
)
CHECKSUMS = {  # images, labels; training, then test
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}

CLASSES = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"

FASHION_MNIST = DatasetInfo(
    name="fashion-mnist",
    title="Fashion-MNIST: pieces of clothing",
    classes=tuple(CLASSES.split(", ")),
    domains=("fashion-mnist",),
    image_size=(28, 28),
    channels="gray, repeated to RGB",
    mean=(0.2860, 0.2860, 0.2860),
    std=(0.3530, 0.3530, 0.3530),
    licence="MIT",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    instructions=f"the folder {FOLDER} with {', '.join(CHECKSUMS)} (compressed or not)",
    files=tuple(File(f"{FOLDER}/{name}", f"{SOURCE}/{name}", sha256) for name, sha256 in CHECKSUMS.items()),
    places=(f"{FOLDER}/*-ubyte*",),
    samples=70_000,
)


@dataset(FASHION_MNIST)
def fashion_mnist(directory: Path) -> Images:
    """Training and test images of Fashion-MNIST, in this order."""
    return read(directory, FASHION_MNIST)


def read(directory: Path, info: DatasetInfo) -> Images:
    """All images of the four files in `info`."""
    missing = [file.path for file in info.files if _find(directory / file.path) is None]
    if missing:
        raise DataMissingError(f"{info.name} is incomplete: there is no {', '.join(missing)} in {directory}")
    train_x, train_y, test_x, test_y = (_array(directory / file.path, file) for file in info.files)
    x, y = np.concatenate([train_x, test_x]), np.concatenate([train_y, test_y]).astype(np.int64)
    return Images(resized(x, info.image_size), y, np.zeros(len(y), np.int64), info)


def _find(path: Path) -> Path | None:
    """The compressed file, or else the one without the suffix .gz."""
    return next((file for file in (path, path.with_suffix("")) if file.is_file()), None)


def _array(compressed: Path, file: File) -> NDArray[np.uint8]:
    path = _find(compressed)
    assert path is not None
    if path == compressed:
        verify(path, file)
    data = gzip.decompress(path.read_bytes()) if path == compressed else path.read_bytes()
    return parse_idx(data, str(path), dimensions=3 if "idx3" in path.name else 1)


def parse_idx(data: bytes, where: str, dimensions: int) -> NDArray[np.uint8]:
    """Parse an idx file of unsigned bytes: two zeros, type 8, rank, big-endian sizes, values.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), "labels", dimensions=1)
    array([7, 9], dtype=uint8)
    """
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, 8, dimensions]):
        raise DataError(f"{where} is not an idx file of bytes in {dimensions} dimensions: download it again")
    shape = tuple(np.frombuffer(data[4:header], ">u4").tolist())
    if len(data) - header != math.prod(shape):
        raise DataError(
            f"{where} has {len(data) - header} bytes of values, but its header says {shape}: "
            "it is truncated or damaged; download it again"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)
