"""How models are called: in which memory layout, with what left behind, and what their errors become."""

import copy

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.helpers.networks import some_rates
from ttpfl import methods
from ttpfl.core.inputs import Inputs
from ttpfl.core.network import describe
from ttpfl.core.runner import Runner
from ttpfl.core.twin import Twin
from ttpfl.errors import BatchError
from ttpfl.methods import SourceInfo

SMALL, LARGE = 6, 8


class Choosy(nn.Module):
    """Needs contiguous maps, of large images or of those given; they are small enough for short cuts."""

    def __init__(self, sides: tuple[int, ...] = (LARGE,)) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.sides = sides
        self.conv, self.norm = nn.Conv2d(3, 4, 3, stride=3, padding=1), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.norm(self.conv(x))
        assert x.shape[-1] not in self.sides or maps.is_contiguous()
        return self.head(maps.mean((2, 3)))


def images(side: int, in_channels_last: bool = False) -> Tensor:
    x = torch.randn(6, 3, side, side, generator=torch.Generator().manual_seed(side))
    return x.to(memory_format=torch.channels_last) if in_channels_last else x


@pytest.mark.parametrize("way", ["plain", "fast"])
@pytest.mark.parametrize("last", [False, True])
def test_what_is_computed_does_not_depend_on_earlier_batches(way: str, last: bool) -> None:
    def logits(*batches: Tensor) -> Tensor:
        runner = Runner(Choosy().eval())
        return [getattr(runner, way)(Inputs((batch,), {})) for batch in batches][-1]

    small, large = images(SMALL, last), images(LARGE, last)
    assert torch.equal(logits(large, small), logits(small))
    assert torch.equal(logits(small, large), logits(large))
    other = images(LARGE, not last)
    assert torch.equal(logits(other, large), logits(large))


@pytest.mark.parametrize("name", ["tent", "bn-adapt", "shot", "rotta", "none", "t3a"])
def test_methods_do_not_depend_on_the_layout_of_earlier_batches(name: str) -> None:
    method = methods.make(name, **({"lr": 0.0} if name in ("tent", "shot", "rotta") else {}))

    def logits(*sides: int) -> Tensor:
        personal = method.adapter(Choosy(), SourceInfo())
        answers = []
        for side in sides:
            answers.append(personal(images(side)))
            personal.reset()
        return answers[-1]

    assert torch.equal(logits(LARGE, SMALL), logits(SMALL))
    assert torch.equal(logits(SMALL, LARGE), logits(LARGE))


@pytest.mark.parametrize("in_channels_last", [False, True])
def test_rates_do_not_depend_on_directions_being_cached(in_channels_last: bool) -> None:
    model, rates = Choosy(), some_rates(Choosy())
    batch = (images(LARGE, in_channels_last), torch.arange(6) % 5)
    expected = ttpfl.refine_rates(model, rates, [batch])
    cache = ttpfl.DirectionCache(10**6)
    for _ in range(2):
        assert torch.equal(ttpfl.refine_rates(model, rates, [batch], cache=cache).values, expected.values)
    assert cache.hits == 1


@pytest.mark.parametrize("way", ["plain", "fast"])
def test_a_layout_that_fails_in_training_leaves_no_traces(way: str) -> None:
    x = images(LARGE, in_channels_last=True)
    model = Choosy().train()
    by_hand = copy.deepcopy(model)
    torch.manual_seed(3)
    logits = getattr(Runner(model), way)(Inputs((x,), {}))
    after = torch.rand(1)
    torch.testing.assert_close(logits, by_hand(x.contiguous()))
    assert model.norm.num_batches_tracked == 1
    torch.testing.assert_close(model.state_dict(), by_hand.state_dict())
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), after)


def test_plain_passes_have_the_bits_of_a_call_by_hand_in_the_given_layout() -> None:
    model = Choosy(sides=()).eval()
    for last in (False, True):
        x = images(LARGE, last)
        assert torch.equal(Runner(model).plain(Inputs((x,), {})), model(x))


class Failing(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.calls = error, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("way", ["plain", "fast"])
@pytest.mark.parametrize("error", [RuntimeError("a"), KeyError("a"), AssertionError("a"), TypeError("a")])
def test_what_a_model_raises_names_the_batch(way: str, error: Exception) -> None:
    with pytest.raises(
        BatchError, match=r"cannot process this batch \(input: torch.float32 \(6, 3, 6, 6\)\): '?a"
    ):
        getattr(Runner(Failing(error)), way)(Inputs((images(SMALL),), {}))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("full"), KeyboardInterrupt(), ttpfl.ModelError("own")]
)
def test_other_errors_pass_at_once(error: Exception) -> None:
    model = Failing(error)
    with pytest.raises(type(error)):
        Runner(model.eval()).fast(Inputs((images(SMALL),), {}))
    assert model.calls == 1


def test_a_twin_that_is_cast_forgets_its_tensors_in_the_old_type() -> None:
    model = Choosy()
    twin = Twin(model, describe(model))
    assert twin.in_channels_last["conv.weight"].dtype == torch.float32
    twin.apply(lambda tensor: tensor.double())
    expected = dict(model.double().named_parameters())
    for name, tensor in twin.in_channels_last.items():
        assert tensor.dtype == torch.float64
        assert name not in expected or torch.equal(tensor, expected[name])
