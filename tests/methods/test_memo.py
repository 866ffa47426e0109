import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.networks import batches, make
from tests.helpers.untouched import untouched
from ttpfl import methods
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods import SourceInfo


class MixedNorm(nn.Module):
    """BatchNorm as MEMO's paper has it: N/(N+1) source and 1/(N+1) own statistics."""

    def __init__(self, norm: nn.Module, strength: float) -> None:
        super().__init__()
        self.norm, self.prior = norm, strength / (strength + 1)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        mean, var = norm.running_mean, norm.running_var
        if x.numel() > x.shape[1]:  # more than one value
            own = (0, *range(2, x.ndim))
            mean = self.prior * mean + (1 - self.prior) * x.detach().mean(own)
            var = self.prior * var + (1 - self.prior) * x.detach().var(own)
        return F.batch_norm(x, mean, var, norm.weight, norm.bias, False, 0, norm.eps)


def views_of(image: Tensor, seed: int, number: int, count: int, padding: int) -> Tensor:
    draw = np.random.default_rng((seed, number))
    padded = np.pad(image.numpy(), ((0, 0), (padding, padding), (padding, padding)), mode="symmetric")
    corners = draw.integers(0, 2 * padding + 1, (count, 2))
    flips = draw.random(count) < 0.5
    views = []
    for (top, left), flip in zip(corners, flips, strict=True):
        view = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        views.append(torch.from_numpy((view[:, :, ::-1] if flip else view).copy()))
    return torch.stack(views)


def by_the_rule(
    model: nn.Module, images: Tensor, lr: float, strength: float | None, first: int = 0
) -> Tensor:
    answers = []
    for number, image in enumerate(images, start=first):
        own = copy.deepcopy(model)
        for name, layer in list(own.named_children()):
            if strength is not None and isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
                setattr(own, name, MixedNorm(layer, strength))
        optimizer = torch.optim.SGD(own.parameters(), lr=lr)
        mean = own(views_of(image, 5, number, 16, 4)).softmax(1).mean(0)
        (-(mean * mean.log()).sum()).backward()
        optimizer.step()
        with torch.no_grad():
            answers.append(own(image[None]))
    return torch.cat(answers)


@pytest.mark.parametrize(
    ("network", "strength"), [("cnn18", None), ("cnn18", 16), ("groupnorm", None), ("vit", None), ("view", 2)]
)
def test_the_rule(network: str, strength: float | None) -> None:
    model = make(network)
    adapter = methods.make("memo", lr=0.1, seed=5, prior_strength=strength).adapter(model, SourceInfo())
    stream = [batches(network, size=3)[0][0], batches(network)[0][0][:1]]
    with untouched(model):
        answers = [adapter(x) for x in stream]
    first = 0
    for x, ours in zip(stream, answers, strict=True):
        theirs = by_the_rule(model, x, 0.1, strength, first)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert (ours - model(x)).abs().max() > 1e-3  # something happened
        first += len(x)


@pytest.mark.parametrize("network", ["cnn18", "groupnorm"])
def test_how_the_stream_is_cut_does_not_matter(network: str) -> None:
    model, x = make(network), batches(network, size=5)[0][0]
    adapter = methods.make("memo").adapter(model, SourceInfo())
    whole = adapter(x)
    adapter.reset()
    assert torch.equal(torch.cat([adapter(part) for part in x.split(2)]), whole)
    adapter.reset()
    with torch.inference_mode():
        assert torch.equal(adapter(x.clone()), whole)
    adapter.reset()
    with pytest.raises(BatchError):
        adapter(torch.cat([x[:2], x[:1] * 1e38]))
    assert torch.equal(adapter(x), whole)  # what failed was not counted
    other = methods.make("memo", seed=1).adapter(model, SourceInfo())
    assert not torch.equal(other(x), whole)


def test_without_a_step_nothing_changes() -> None:
    model, x = make("cnn18"), batches("cnn18")[0][0]
    answer = methods.make("memo", lr=0.0).adapter(model, SourceInfo())(x)
    torch.testing.assert_close(answer, model(x).detach(), rtol=1e-4, atol=1e-5)


def test_no_images() -> None:
    adapter = methods.make("memo").adapter(make("mlp"), SourceInfo())
    for batch in (torch.zeros(2, 6), [torch.zeros(2, 3, 8, 8)], torch.zeros(2, 3, 8, 8).long()):
        with pytest.raises(MethodError, match="memo crops and flips images"):
            adapter(batch)
    with pytest.raises(MethodError, match="augmentations must be a positive integer, got 0"):
        methods.make("memo", augmentations=0)
