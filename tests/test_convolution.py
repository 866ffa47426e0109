"""Trimmed convolutions equal the ordinary ones, in value and gradient."""

import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ttpfl.core.convolution import Taps, conv2d

small = st.integers(1, 4)


def record(used: list[Taps | None]):
    def narrow(weight: Tensor, taps: Taps | None) -> Tensor:
        used.append(taps)
        return weight if taps is None else taps.of(weight)

    return narrow


@settings(max_examples=150, deadline=None)
@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kernel=st.tuples(small, small),
    stride=st.tuples(small, small),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 2]),
    bias=st.booleans(),
    channels_last=st.booleans(),
)
def test_equals_the_ordinary_convolution(
    size, kernel, stride, padding, dilation, groups, bias, channels_last
) -> None:
    for n, k, p, d in zip(size, kernel, padding, dilation, strict=True):
        assume(n + 2 * p >= d * (k - 1) + 1)
    x = torch.randn(3, 4, *size, dtype=torch.float64)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    weight = torch.randn(6, 4 // groups, *kernel, dtype=torch.float64, requires_grad=True)
    shift = torch.randn(6, dtype=torch.float64, requires_grad=True) if bias else None
    arguments = (shift, stride, padding, dilation, groups)
    expected = F.conv2d(x, weight, *arguments)
    ours = conv2d(record([]), x, weight, *arguments)
    assert ours.shape == expected.shape
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)
    leaves = [x, weight] if shift is None else [x, weight, shift]
    for a, b in zip(
        torch.autograd.grad(ours.sin().sum(), leaves),
        torch.autograd.grad(expected.sin().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_taps_that_see_only_padding_are_left_out() -> None:
    used: list[Taps | None] = []
    weight = torch.randn(2, 2, 3, 3)
    conv2d(record(used), torch.randn(1, 2, 1, 1), weight, None, 1, 1)
    conv2d(record(used), torch.randn(1, 2, 2, 2), weight, None, 2, 1)
    conv2d(record(used), torch.randn(1, 2, 2, 2), weight, None, 1, 1)
    conv2d(record(used), torch.randn(1, 2, 32, 32), weight, None, 1, 1)
    assert used == [Taps(1, 2, 1, 2), Taps(1, 3, 1, 3), None, None]


def test_other_ways_to_call_it() -> None:
    x, weight = torch.randn(2, 2, 4, 4), torch.randn(3, 2, 3, 3)
    for kwargs in ({"padding": "same"}, {"padding": "valid"}, {"padding": 1}, {"stride": [2, 2]}, {}):
        torch.testing.assert_close(conv2d(record([]), x, weight, **kwargs), F.conv2d(x, weight, **kwargs))
    unbatched = conv2d(record([]), x[0], weight)
    torch.testing.assert_close(unbatched, F.conv2d(x[0], weight))
