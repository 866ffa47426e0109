"""Placement of tensors in memory, and reuse of freed memory."""

import ctypes
import mmap
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

# Parameters of glibc's mallopt (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_GIBIBYTE, _LARGEST_MMAP_THRESHOLD = 2**30, 32 * 2**20
_WORTH_A_BLOCK = 2**16  # bytes: a process can have tens of thousands of blocks, not millions
_ALIGNMENT = 64
# Not shared with forked processes; systems without fork do not have these flags.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def keep_freed_memory() -> bool:
    """Let this process keep up to a gibibyte of freed memory; return whether the C library supports it.

    Activations are allocated and freed in every batch. By default, glibc returns much of this memory to the
    system each time and gets zeroed pages back, which takes a fifth of the time of training a small network
    in two processes. Only for worker processes, never for the user's process.

    >>> keep_freed_memory() in (True, False)
    True
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    accepted = [mallopt(_TRIM_THRESHOLD, _GIBIBYTE), mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)]
    return all(accepted)


def set_apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors to a separate block of memory.

    Long-lived tensors between short-lived ones fragment the heap: the gaps become too small for the next
    batch, and the process grows by several times the size of what is kept. Small tensors and tensors on a GPU
    are returned as they are, and so are all if the system has no more blocks.

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
        strides = torch.empty_like(tensor, device="meta").stride()  # those of a copy
        memory = part[: tensor.nbytes].view(tensor.dtype).as_strided(tensor.shape, strides)
        copies.append(memory.copy_(tensor))
    return copies
