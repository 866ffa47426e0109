"""CIFAR-10 and CIFAR-100 in their binary versions: archives or extracted folders."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.images import DatasetInfo, File, Images
from ttpfl.data.registry import dataset
from ttpfl.data.storage import verify
from ttpfl.errors import DataError, DataMissingError

PIXELS = 3 * 32 * 32  # one channel after the other
ADDRESS = "https://www.cs.toronto.edu/~kriz"
LICENCE = "none stated; its author asks to cite Krizhevsky, Learning Multiple Layers of Features, 2009"

CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
FINE_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower
sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""


class Layout(NamedTuple):
    """The folder in the archive, its files (training, then test), and the label bytes before each image."""

    folder: str
    names: tuple[str, ...]
    label_bytes: int  # the last one is the class


TEN = Layout("cifar-10-batches-bin", (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"), 1)
HUNDRED = Layout("cifar-100-binary", ("train.bin", "test.bin"), 2)


def _info(layout: Layout, archive: str, sha256: str, listing: str, **fields: Any) -> DatasetInfo:
    return DatasetInfo(
        **fields,
        domains=(fields["name"],),
        image_size=(32, 32),
        channels="RGB",
        licence=LICENCE,
        homepage=f"{ADDRESS}/cifar.html",
        instructions=f"the folder {layout.folder} ({listing}) or the archive {archive}",
        files=(File(archive, f"{ADDRESS}/{archive}", sha256),),
        places=(f"{layout.folder}/*.bin", archive),
        samples=60_000,
    )


CIFAR10 = _info(
    TEN,
    "cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "data_batch_1.bin to data_batch_5.bin, test_batch.bin",
    name="cifar10",
    title="CIFAR-10: photographs of ten kinds of things",
    classes=tuple(CLASSES.split()),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
)

CIFAR100 = _info(
    HUNDRED,
    "cifar-100-binary.tar.gz",
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    "train.bin, test.bin",
    name="cifar100",
    title="CIFAR-100: photographs of a hundred kinds of things",
    classes=tuple(FINE_CLASSES.split()),
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    defaults={"ratio": 51.0},
)


@dataset(CIFAR10)
def cifar10(directory: Path) -> Images:
    """Training and test images of CIFAR-10, in this order."""
    return read(directory, CIFAR10, TEN)


@dataset(CIFAR100)
def cifar100(directory: Path) -> Images:
    """Training and test images of CIFAR-100, in this order, with the fine labels."""
    return read(directory, CIFAR100, HUNDRED)


def read(directory: Path, info: DatasetInfo, layout: Layout) -> Images:
    """All images of the layout's files, in order."""
    pairs = (_records(data, where, layout) for where, data in _contents(directory, info, layout))
    x, y = map(np.concatenate, zip(*pairs, strict=True))
    return Images(x, y, np.zeros(len(y), np.int64), info)


def _contents(directory: Path, info: DatasetInfo, layout: Layout) -> Iterator[tuple[str, bytes]]:
    """Each file's path, for messages, and its bytes; from the folder if it is complete."""
    folder, archive = directory / layout.folder, directory / info.files[0].path
    missing = [name for name in layout.names if not (folder / name).is_file()]
    if not missing:
        return ((str(folder / name), (folder / name).read_bytes()) for name in layout.names)
    if archive.is_file():
        verify(archive, info.files[0])
        return _unpacked(archive, layout)
    lacking = f"{', '.join(missing)} in {folder}" if folder.is_dir() else str(folder)
    raise DataMissingError(f"{info.name} is incomplete: there is no {lacking}, and no {archive}")


def _unpacked(archive: Path, layout: Layout) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive, "r:gz") as tar:
        # One pass in the archive's order: seeking backwards would decompress it again.
        members = {
            member.name.removeprefix("./"): opened.read()
            for member in tar
            if member.name.endswith(".bin") and (opened := tar.extractfile(member)) is not None
        }
    for name in layout.names:
        member_name = f"{layout.folder}/{name}"
        if member_name not in members:
            raise DataError(f"{archive} has no {member_name}: it is not the binary version of this data set")
        yield f"{archive}:{member_name}", members.pop(member_name)


def _records(data: bytes, where: str, layout: Layout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    length = layout.label_bytes + PIXELS
    if not data or len(data) % length:
        raise DataError(
            f"{where} has {len(data)} bytes, which is not a multiple of {length}, the size of an image with "
            "its label: it is truncated or a different file; download it again"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, length)
    planes = records[:, layout.label_bytes :].reshape(-1, 3, 32, 32)
    y = records[:, layout.label_bytes - 1].astype(np.int64)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), y
