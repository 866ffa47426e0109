"""What a second pass over a batch need not compute again, counted in calls of torch's operators."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import ttpfl
from ttpfl.core.at_once import at_once
from ttpfl.core.convolution import conv2d, part_that_sees_data
from ttpfl.core.torch_overrides import channels_last


class Calls(TorchDispatchMode):
    """Counts the calls of every operator."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.of[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def personalizer(model: nn.Module, only: Any) -> ttpfl.Personalizer:
    rates = ttpfl.Rates.zeros(model, only=only)
    return ttpfl.Personalizer(model, rates.with_values(torch.full_like(rates.values, 0.3)), "online")


@pytest.mark.parametrize(("only", "convolutions"), [("head", 3), ("forward", 5), ("stats", 5), (None, 6)])
def test_the_first_convolution_is_computed_once_if_no_kernel_moves(only: Any, convolutions: int) -> None:
    torch.manual_seed(0)
    personal = personalizer(ttpfl.models.shallow_cnn(3), only)
    images = channels_last(torch.randn(4, 3, 32, 32))
    personal(images)  # the first batch probes the model
    with Calls() as calls:
        personal(images)
    assert calls.of["convolution"] == convolutions


@pytest.mark.parametrize("size", [32, 1])
def test_passes_that_skip_taps_keep_only_what_has_the_same_bits(size: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.AdaptiveMaxPool2d(1)),
        *(nn.Conv2d(4, 64, 3, padding=1), nn.BatchNorm2d(64), nn.Flatten(), nn.Linear(64, 3)),
    ).eval()
    personal = personalizer(model, "forward")
    images = channels_last(torch.randn(4, 3, size, size))
    for _ in range(3):
        with Calls() as calls, torch.no_grad():
            logits = personal(images)
        assert torch.equal(logits, personal.adapted_model()(images))
    assert calls.of["convolution"] == 2  # the first pass computes tiny maps as matrices


class Odd(nn.Module):
    """Runs `body` over two linear layers with a normalisation layer after each."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.body, self.late, self.out = body, nn.BatchNorm1d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.late(self.body(self, x)))


def output_changed(net: Odd, x: Tensor) -> Tensor:
    return net.norm(net.a(x).relu_())


def input_changed(net: Odd, x: Tensor) -> Tensor:
    before = net.a(x)
    x.mul_(2)
    return net.norm(before) + x + net.a(x)


def called_twice(net: Odd, x: Tensor) -> Tensor:
    first = net.a(x)
    net.a(x).add_(net.norm(first))
    return first + net.a(x)


def called_late(net: Odd, x: Tensor) -> Tensor:
    return net.a(net.norm(x))


def by_keyword(net: Odd, x: Tensor) -> Tensor:
    return net.norm(net.a(input=x))


def in_inference_mode(net: Odd, x: Tensor) -> Tensor:
    with torch.inference_mode():
        frozen = net.a(x)
    return net.norm(frozen.clone())


def usual(net: Odd, x: Tensor) -> Tensor:
    return net.norm(net.b(net.a(x)))


BODIES = {  # with the number of linear layers in both passes
    output_changed: 4,
    input_changed: 6,
    called_twice: 7,
    called_late: 4,
    by_keyword: 4,
    in_inference_mode: 4,
    usual: 5,
}


@pytest.mark.parametrize("body", BODIES)
def test_outputs_are_only_used_again_where_nothing_changed(body: Any) -> None:
    """Compared with the adapted model, which computes everything, bit for bit."""
    torch.manual_seed(0)
    model = Odd(body).eval()
    personal = personalizer(model, "forward")
    for batch in torch.randn(3, 6, 4):
        with Calls() as calls, torch.no_grad():
            logits = personal(batch)
        assert torch.equal(logits, personal.adapted_model()(batch.clone()))
    assert calls.of["addmm"] + calls.of["linear"] == BODIES[body]


def test_frozen_kernels_are_not_copied_for_each_image() -> None:
    images, kernel = torch.randn(5, 3, 2, 2), torch.randn(4, 3, 3, 3)
    with Calls() as calls, torch.no_grad():
        conv2d(part_that_sees_data, images, kernel, padding=1)
    assert calls.of["mm"] + calls.of["addmm"] == 1
    assert not calls.of["bmm"]


def test_at_once_is_one_by_one() -> None:
    a = [torch.randn(3), torch.randn(2, 2), torch.randn(0)]
    b = [torch.randn(3), torch.randn(2, 2), torch.randn(0)]
    assert [len(part) for part in at_once(torch.add, a[:2], [torch.ones(()), torch.ones(2)])] == [3, 2]
    for kinds in ([torch.float32] * 3, [torch.float32, torch.float64, torch.float16]):
        columns = [[part.to(kind) for part, kind in zip(parts, kinds, strict=True)] for parts in (a, b)]
        found = at_once(torch.atan2, *columns)
        for ours, expected in zip(found, map(torch.atan2, *columns), strict=True):
            assert ours.dtype == expected.dtype
            assert torch.equal(ours, expected)
