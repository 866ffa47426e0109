"""Models that depend on how images lie in memory: which batch a process sees first must not matter."""

import pytest
import torch
from torch import Tensor, nn

from ttpfl.core.inputs import Inputs
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.errors import BatchError
from ttpfl.federation.clients.local_training import LocalTrainer
from ttpfl.federation.settings import TrainSettings

SMALL, LARGE = 6, 8


class Particular(nn.Module):
    """Looks at strides, or demands a layout, when `particular` says so."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def particular(self, x: Tensor) -> bool:
        raise AssertionError

    def forward(self, x: Tensor) -> Tensor:
        if self.particular(x):
            x = x.as_strided(x.shape, x.stride())
        return self.linear(self.conv(x).mean((2, 3)))


class WithLargeImages(Particular):
    def particular(self, x: Tensor) -> bool:
        return x.shape[-1] == LARGE


class InTraining(Particular):
    def particular(self, x: Tensor) -> bool:
        return self.training


class AboutLayout(Particular):
    def particular(self, x: Tensor) -> bool:
        assert x.is_contiguous()
        return False


def images(side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(side)
    return torch.randn(8, 3, side, side, generator=generator), torch.arange(8) % 3


def trained(model: nn.Module, *before: int) -> dict[str, Tensor]:
    """The state after training with large images, for a trainer that has seen others."""
    trainer = LocalTrainer(model, TrainSettings(batch_size=4))
    for side in before:
        trainer.evaluate(images(side), seed=(0,))
    trainer.train(images(LARGE), seed=(1,))
    return model.state_dict()


@pytest.mark.parametrize("model", [WithLargeImages, InTraining, AboutLayout])
def test_training_does_not_depend_on_earlier_batches(model: type[Particular]) -> None:
    wanted = trained(model())
    for before in ((SMALL,), (LARGE,), (SMALL, LARGE)):
        found = trained(model(), *before)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_a_twin_does_not_depend_on_earlier_batches() -> None:
    model = WithLargeImages().eval()

    def logits(*sides: int) -> Tensor:
        twin = Twin(model, Rates.zeros(model).modules)
        return [twin.fast(Inputs((images(side)[0],), {})) for side in sides][-1]

    assert torch.equal(logits(LARGE, SMALL), logits(SMALL))
    assert torch.equal(logits(SMALL, LARGE), logits(LARGE))


def test_a_batch_that_fails_in_any_layout_says_nothing_about_others() -> None:
    trainer = LocalTrainer(WithLargeImages(), TrainSettings(batch_size=4))
    with pytest.raises(BatchError, match="cannot process"):
        trainer.evaluate((torch.zeros(4, 2, SMALL, SMALL), torch.zeros(4, dtype=torch.long)), seed=(0,))
    wanted = trained(WithLargeImages())
    trainer.train(images(LARGE), seed=(1,))
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in trainer.model.state_dict().items())
