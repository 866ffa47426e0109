"""The images that a client's camera takes: corrupted on demand, or once and for all into a file."""

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
from ttpfl.data.images import Triple
from ttpfl.data.partition import Ids
from ttpfl.data.plan import Applied, Plan
from ttpfl.data.storage import keep_digest
from ttpfl.errors import DataError
from ttpfl.util.files import written_in_one_step
from ttpfl.util.parallel import Progress, in_parallel

Array = NDArray[np.uint8]

_CORRUPT = 4  # what the random numbers are for; see plan.py


@dataclass(frozen=True, eq=False)
class Pixels:
    """Images, and what a corruption makes of them. No labels: target clients hold this."""

    clean: Array
    seed: int
    frost_textures: Sequence[Array] = ()
    corrupted: Array | None = None
    """Row i is image i as its client's camera takes it; None corrupts on demand, with the same result."""

    def of(self, client: int, corruption: Applied | None, ids: Ids) -> Array:
        """The images `ids` of this client."""
        if corruption is None:
            return self.clean[ids]
        if self.corrupted is not None:
            return self.corrupted[ids]
        seeds = [(self.seed, _CORRUPT, client, image) for image in ids.tolist()]
        corrupt = extra("ttpfl.data.corruptions").corrupt
        return np.asarray(corrupt(self.clean[ids], *corruption, seeds, self.frost_textures))


def with_corrupted(pixels: Pixels, path: Path) -> Pixels:
    """The same, with the corrupted images in the file at `path`, which are read as they are needed."""
    try:
        corrupted = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path} is not a sound npy file ({error}): delete it") from error
    if corrupted.shape != pixels.clean.shape or corrupted.dtype != np.uint8:
        raise DataError(
            f"{path} has {corrupted.dtype} {corrupted.shape}, not uint8 {pixels.clean.shape}: delete it"
        )
    return replace(pixels, corrupted=corrupted)


def write_corrupted(
    path: Path, plan: Plan, pixels: Pixels, workers: int, progress: Progress | None = None
) -> None:
    """Write every client's corrupted images into one file, which appears when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_in_one_step(path) as file:
        out = np.lib.format.open_memmap(file.name, "w+", np.uint8, pixels.clean.shape)
        # Reserved now: a full disk is an error here, but the end of the process while writing to memory.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, os.path.getsize(file.name))

        def write(client: int) -> None:
            ids = plan.ids(client)
            out[ids] = pixels.of(client, plan.corruption(client), ids)

        in_parallel(write, len(plan), workers, progress)
        out.flush()
        keep_digest(path, Path(file.name))  # first: a file without a digest is not trusted


def as_tensor(pixels: Array, mean: Triple, std: Triple) -> Tensor:
    """Images as a network takes them: (N, 3, height, width), normalised, channels last in memory.

    >>> as_tensor(np.full((1, 2, 2, 3), 255, np.uint8), (0.5, 0.5, 0.0), (0.5, 0.25, 1.0))[0, :, 0, 0]
    tensor([1., 2., 1.])
    """
    values = torch.from_numpy(np.ascontiguousarray(pixels)).to(torch.float32)
    # Whole lines of pixels at once: four times as fast as along an axis of three.
    lines, width = values.flatten(0, 1).flatten(1), pixels.shape[2]
    lines.sub_((torch.tensor(mean) * 255).repeat(width)).div_((torch.tensor(std) * 255).repeat(width))
    return values.permute(0, 3, 1, 2)


def textures_in(folder: str | None) -> tuple[Array, ...]:
    """The user's own pictures for frost."""
    if folder is None:
        return ()
    from ttpfl.data.pictures import Unreadable, decode, pictures_in  # it needs pillow

    found: list[Any] = list(decode(pictures_in(Path(folder)), None)) if Path(folder).is_dir() else []
    unreadable = [picture for picture in found if isinstance(picture, Unreadable)]
    if unreadable or not found:
        reasons = "; ".join(f"{path} ({reason})" for path, reason in unreadable) or "it has no pictures"
        raise DataError(f"frost_textures is {folder!r}, but {reasons}")
    return tuple(found)
