"""Convolutions on small maps, without the work that only ever meets padding.

Networks made for large images end in maps of 1x1 or 2x2 pixels on small ones. A 3x3 kernel with
padding then has taps that never see data: their weights do not influence the output and their
gradient is zero. `conv2d` leaves them out, and turns what is left on tiny maps into one matrix
product. The result equals `F.conv2d` up to the order of the sums.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Up to this many output pixels a matrix product is faster than a convolution (measured on x86 CPUs).
MATRIX_PIXELS = 4
# Maps with longer sides are not looked at: every tap sees data there, or nearly so.
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


# Gives the weight to use for (weight, taps); taps None stands for the whole kernel.
Narrow = Callable[[Tensor, Taps | None], Tensor]


def part_that_sees_data(weight: Tensor, taps: Taps | None) -> Tensor:
    """The plain way to narrow: a view of the weight."""
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
    """`F.conv2d` that asks `narrow` for just the part of the weight that sees data."""
    if isinstance(padding, str) or not _worthwhile(input, weight):
        return F.conv2d(input, narrow(weight, None), bias, stride, padding, dilation, groups)
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    axes = [
        _live(input.shape[2 + a], weight.shape[2 + a], stride[a], padding[a], dilation[a]) for a in (0, 1)
    ]
    (top, bottom, pad_y, height), (left, right, pad_x, width) = axes
    taps = Taps(top, bottom, left, right)
    whole = taps == (0, weight.shape[2], 0, weight.shape[3])
    kernel = narrow(weight, None if whole else taps)
    if groups == 1 and height * width <= MATRIX_PIXELS:
        columns = F.unfold(input, kernel.shape[2:], dilation, (pad_y, pad_x), stride)
        pixels = F.linear(columns.transpose(1, 2), kernel.flatten(1), bias)
        maps = pixels.reshape(len(input), height, width, -1).permute(0, 3, 1, 2)
        # Laid out as torch does it, since a model may view the result, or look at its strides.
        return maps if _channels_last(input) or _channels_last(weight) else maps.contiguous()
    return F.conv2d(input, kernel, bias, stride, (pad_y, pad_x), dilation, groups)


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
    """First and last-plus-one tap that sees data along one axis, the padding left, the output size."""
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    whole = (0, kernel, padding, out)
    if out > TRIM_SIZE:
        return whole
    seen = [
        tap
        for tap in range(kernel)
        if any(0 <= place * stride - padding + tap * dilation < size for place in range(out))
    ]
    if not seen:
        return whole
    first, last = seen[0], seen[-1] + 1
    left_over = padding - first * dilation
    # Padding is the same on both sides: where that no longer gives the output size, do without.
    fits = left_over >= 0 and (size + 2 * left_over - dilation * (last - first - 1) - 1) // stride + 1 == out
    return (first, last, left_over, out) if fits else whole
