"""Where tensors lie in memory, and what becomes of memory that is free again."""

import ctypes
import mmap
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

# Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_GIBIBYTE, _LARGEST_MMAP_THRESHOLD = 2**30, 32 * 2**20
_WORTH_A_BLOCK = 2**16  # bytes: a system has tens of thousands of blocks for a process, not millions
_ALIGNMENT = 64
# Not shared with forked processes; systems without fork have no such flags.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def keep_freed_memory() -> bool:
    """Let this process keep up to a gibibyte of free memory instead of giving it back at once.

    A network's activations are allocated and freed in every batch. By default glibc returns much of that
    to the system each time, which then hands out zeroed pages anew: a fifth of the time of training a
    small network in two processes. For worker processes of our own; never for the user's.

    Returns:
        Whether the C library took the advice; others than glibc are left as they are.

    >>> keep_freed_memory() in (True, False)
    True
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    took = [mallopt(_TRIM_THRESHOLD, _GIBIBYTE), mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)]
    return all(took)


def set_apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copies that lie together in a block of memory of their own; small ones, and a GPU's, as they are.

    So are all, when the system has no more blocks.

    What is kept for long beside what comes and goes with every batch ends up in the gaps between: then the
    gaps are too small for the next batch, and the process grows by several times of what is kept.

    >>> [kept] = set_apart([torch.arange(20_000.0)])
    >>> kept[:3], bool((kept == torch.arange(20_000.0)).all())
    (tensor([0., 1., 2.]), True)
    """
    sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors]
    if sum(sizes) < _WORTH_A_BLOCK or any(tensor.device.type != "cpu" for tensor in tensors):
        return list(tensors)
    try:
        block = torch.frombuffer(mmap.mmap(-1, sum(sizes), **_PRIVATE), dtype=torch.uint8)
    except OSError:
        return list(tensors)
    copies = []
    for tensor, part in zip(tensors, block.split(sizes), strict=True):
        like = torch.empty_like(tensor, device="meta")  # the strides that a copy would have
        place = part[: tensor.nbytes].view(tensor.dtype).as_strided(tensor.shape, like.stride())
        copies.append(place.copy_(tensor))
    return copies
