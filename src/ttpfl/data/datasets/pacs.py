"""PACS: photographs, art paintings, cartoons and sketches, in one folder per domain and class."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.extras import version_of
from ttpfl.data.images import DatasetInfo, Images
from ttpfl.data.option_types import ImageSize
from ttpfl.data.pictures import Size, Unreadable, as_size, decode, pictures_in
from ttpfl.data.registry import dataset
from ttpfl.data.storage import cache_path, keep
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.reading import regular_size

FOLDER = "PACS"

PACS = DatasetInfo(
    name="pacs",
    title="PACS: seven kinds of things as photographs, art paintings, cartoons and sketches",
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    domains=("art_painting", "cartoon", "photo", "sketch"),
    image_size=(224, 224),
    channels="RGB",
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    licence="none stated; distributed for research",
    homepage="https://arxiv.org/abs/1710.03077",
    instructions="the images as PACS/<domain>/<class>/*.jpg (domains art_painting, cartoon, photo, sketch; "
    "classes dog, elephant, giraffe, guitar, horse, house, person)",
    places=(f"{FOLDER}/*/*/*",),
    samples=9_991,
    defaults={"clients_per_domain": 7},
)


@dataset(PACS)
def pacs(directory: Path, image_size: ImageSize = 224) -> Images:
    """All images by domain, class and file name, resized to `image_size` (a side, or height and width)."""
    info = replace(PACS, image_size=as_size(image_size) or PACS.image_size)
    paths, y, domain = _listing(directory / FOLDER)
    return Images(_pixels(directory, paths, info.image_size), y, domain, info)


def _listing(root: Path) -> tuple[list[Path], NDArray[np.int64], NDArray[np.int64]]:
    folders = {
        (c, d): root / domain / name
        for d, domain in enumerate(PACS.domains)
        for c, name in enumerate(PACS.classes)
    }
    files = {key: pictures_in(folder) if folder.is_dir() else [] for key, folder in folders.items()}
    if missing := [str(folders[key]) for key, paths in files.items() if not paths]:
        shown = ", ".join(missing[:3]) + (" and others" if len(missing) > 3 else "")
        raise DataMissingError(f"pacs is incomplete: there are no images in {shown}")
    rows = [(path, *key) for key, paths in files.items() for path in paths]
    y, domain = np.array([row[1:] for row in rows], np.int64).T
    return [path for path, *_ in rows], y, domain


def _pixels(directory: Path, paths: list[Path], size: Size) -> NDArray[np.uint8]:
    key = {
        "size": size,
        "pillow": version_of("pillow"),
        "files": [(str(p.relative_to(directory)), p.stat().st_size, p.stat().st_mtime_ns) for p in paths],
    }
    cache = cache_path(directory, f"pacs-{size[0]}x{size[1]}", key, "npy")
    shape = (len(paths), *size, 3)
    if (x := _cached(cache, shape)) is None:
        x = _decoded(paths, shape)
        keep(cache, partial(np.save, arr=x))
    return x


def _cached(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    try:
        regular_size(path)
        # Memory-mapped, because it has 1.5 GB at 224x224; copy-on-write, so that the file never changes.
        x = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):  # missing or invalid
        return None
    return x if x.shape == shape and x.dtype == np.uint8 else None


def _decoded(paths: list[Path], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    x, failures = np.empty(shape, np.uint8), []
    for index, pixels in enumerate(decode(paths, (shape[1], shape[2]))):
        if isinstance(pixels, Unreadable):
            failures.append(str(pixels))
        else:
            x[index] = pixels
    if failures:
        raise DataError(f"{len(failures)} images cannot be read; download them again: {'; '.join(failures)}")
    return x
