"""The pixels of clients: clean, corrupted on access, or corrupted in advance in a file."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttpfl.data.extras import extra
from ttpfl.data.partition import Ids
from ttpfl.data.plan import Applied, Plan
from ttpfl.data.storage import keep_digest
from ttpfl.errors import DataError
from ttpfl.util.files import written_in_one_step
from ttpfl.util.parallel import Progress, in_parallel

Array = NDArray[np.uint8]

_CORRUPT = 4  # a purpose of random numbers; see plan.py


@dataclass(frozen=True, eq=False)
class Pixels:
    """Clean images and their corruptions. No labels, because target clients hold this object."""

    clean: Array
    seed: int
    frost_textures: Sequence[Array] = ()
    corrupted: Array | None = None
    """Image i with the corruption of its client; None corrupts on access, with the same result."""

    def of(self, client: int, corruption: Applied | None, ids: Ids) -> Array:
        """The images `ids` of a client."""
        if corruption is None:
            return self.clean[ids]
        if self.corrupted is not None:
            return self.corrupted[ids]
        seeds = [(self.seed, _CORRUPT, client, image) for image in ids.tolist()]
        corrupt = extra("ttpfl.data.corruptions").corrupt
        return np.asarray(corrupt(self.clean[ids], *corruption, seeds, self.frost_textures))


def with_corrupted(pixels: Pixels, path: Path) -> Pixels:
    """The same, with the corrupted images in the file at `path`, which is memory-mapped."""
    try:
        corrupted = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not a valid npy file ({error}): delete it") from error
    if corrupted.shape != pixels.clean.shape or corrupted.dtype != np.uint8:
        raise DataError(
            f"{path} has {corrupted.dtype} {corrupted.shape} instead of uint8 {pixels.clean.shape}: delete it"
        )
    return replace(pixels, corrupted=corrupted)


def write_corrupted(
    path: Path, plan: Plan, pixels: Pixels, workers: int, progress: Progress | None = None
) -> None:
    """Write every client's corrupted images to one file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_in_one_step(path) as file:
        out = np.lib.format.open_memmap(file.name, "w+", np.uint8, pixels.clean.shape)
        # Reserve the space now: a full disk is an error here, but kills the process during a mapped write.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, os.path.getsize(file.name))

        def write(client: int) -> None:
            ids = plan.ids(client)
            out[ids] = pixels.of(client, plan.corruption(client), ids)

        in_parallel(write, len(plan), workers, progress)
        out.flush()
        keep_digest(path, Path(file.name))  # before the file appears: without a digest it is not trusted


def as_tensor(pixels: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Normalised images for a network: (N, 3, height, width), with channels last in memory.

    >>> as_tensor(np.full((1, 2, 2, 3), 255, np.uint8), (0.5, 0.5, 0.0), (0.5, 0.25, 1.0))[0, :, 0, 0]
    tensor([1., 2., 1.])
    """
    values = torch.from_numpy(np.ascontiguousarray(pixels)).to(torch.float32)
    # Line by line: four times as fast as along an axis of length 3.
    lines, width = values.flatten(0, 1).flatten(1), pixels.shape[2]
    lines.sub_((torch.tensor(mean) * 255).repeat(width)).div_((torch.tensor(std) * 255).repeat(width))
    return values.permute(0, 3, 1, 2)


def textures_in(folder: str | None) -> tuple[Array, ...]:
    """The user's images for frost."""
    if folder is None:
        return ()
    from ttpfl.data.pictures import Unreadable, decode, pictures_in  # needs pillow

    textures: list[Any] = list(decode(pictures_in(Path(folder)), None)) if Path(folder).is_dir() else []
    unreadable = [str(texture) for texture in textures if isinstance(texture, Unreadable)]
    if unreadable or not textures:
        raise DataError(f"frost_textures={folder!r}: {'; '.join(unreadable) or 'it has no images'}")
    return tuple(textures)
