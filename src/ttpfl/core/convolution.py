"""Convolutions on small maps that skip work on padding.

On small images, networks made for large ones end in maps of 1x1 or 2x2 pixels. A 3x3 kernel with padding then
has taps that never see data: their weights do not affect the output, and their gradient is zero. `conv2d`
skips them, and computes the rest on tiny maps as one matrix product. The result equals `F.conv2d` up to the
order of sums.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Up to this many output pixels a matrix product is faster than a convolution (measured on x86 CPUs).
MATRIX_PIXELS = 4
# On maps with longer sides (nearly) every tap sees data.
TRIM_SIZE = 8


class Taps(NamedTuple):
    """The window of a kernel that sees data: rows top..bottom, columns left..right."""

    top: int
    bottom: int
    left: int
    right: int

    def of(self, kernel: Tensor) -> Tensor:
        """The window as a view of `kernel`."""
        return kernel[:, :, self.top : self.bottom, self.left : self.right]


# Maps (weight, taps) to the weight to use; without taps, to the whole kernel.
Narrow = Callable[[Tensor, Taps | None], Tensor]


def part_that_sees_data(weight: Tensor, taps: Taps | None) -> Tensor:
    """Return the window `taps` as a view of the weight."""
    return weight if taps is None else taps.of(weight)


def conv2d(
    narrow: Narrow,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """`F.conv2d` with only the part of the weight that sees data, given by `narrow`."""
    if isinstance(padding, str) or not _worthwhile(input, weight):
        return F.conv2d(input, narrow(weight, None), bias, stride, padding, dilation, groups)
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    axes = map(_live, input.shape[2:], weight.shape[2:], stride, padding, dilation)
    (top, bottom, pad_y, height), (left, right, pad_x, width) = axes
    taps = Taps(top, bottom, left, right)
    all_taps = (0, weight.shape[2], 0, weight.shape[3])
    kernel = narrow(weight, None if taps == all_taps else taps)
    if groups == 1 and height * width <= MATRIX_PIXELS:
        columns = F.unfold(input, kernel.shape[2:], dilation, (pad_y, pad_x), stride)
        # As one matrix: for a stack of them, torch may copy the kernel for each image.
        pixels = F.linear(columns.transpose(1, 2).flatten(0, 1), kernel.flatten(1), bias)
        maps = pixels.reshape(len(input), height, width, -1).permute(0, 3, 1, 2)
        # Same layout as torch, since a model may view the result or depend on its strides.
        return maps if _channels_last(input) or _channels_last(weight) else maps.contiguous()
    return F.conv2d(input, kernel, bias, stride, (pad_y, pad_x), dilation, groups)


def is_ordinary(maps: Tensor) -> bool:
    """Whether these maps, or rows, have the same bits from `conv2d` as from `F.conv2d`."""
    return maps.ndim != 4 or min(maps.shape[2:]) > TRIM_SIZE


def _worthwhile(input: Tensor, weight: Tensor) -> bool:
    return (
        input.ndim == weight.ndim == 4
        and input.device.type == "cpu"
        and input.dtype == weight.dtype
        and input.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )


def _channels_last(maps: Tensor) -> bool:
    return maps.is_contiguous(memory_format=torch.channels_last) and not maps.is_contiguous()


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    return (pair[0], pair[-1])


def _live(size: int, kernel: int, stride: int, padding: int, dilation: int) -> tuple[int, int, int, int]:
    """Range of taps that see data along one axis, remaining padding, and output size."""
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    untrimmed = (0, kernel, padding, out)
    if out > TRIM_SIZE:
        return untrimmed
    seen = [
        tap
        for tap in range(kernel)
        if any(0 <= pixel * stride - padding + tap * dilation < size for pixel in range(out))
    ]
    if not seen:
        return untrimmed
    first, last = seen[0], seen[-1] + 1
    left_over = padding - first * dilation
    # Padding is the same on both sides: do not trim if that would change the output size.
    fits = left_over >= 0 and (size + 2 * left_over - dilation * (last - first - 1) - 1) // stride + 1 == out
    return (first, last, left_over, out) if fits else untrimmed
