import copy

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import authors
from tests.helpers.networks import batches, frozen
from tests.helpers.untouched import untouched
from ttpfl import methods
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods import SourceInfo


def by_the_rule(model: nn.Module, head: nn.Linear, stream: list[Tensor], keep: int | None) -> list[Tensor]:
    """One list of supports, from which each batch's classifier is made anew; one sample after another."""
    supports = [(row, head(row)) for row in head.weight]
    answers = []
    for batch in stream:
        inputs: list[Tensor] = []
        handle = head.register_forward_hook(lambda layer, args, output, inputs=inputs: inputs.append(args[0]))
        logits = model(batch)
        handle.remove()
        supports += list(zip(inputs[0], logits, strict=True))
        columns = []
        for label in range(head.out_features):
            own = [
                (z, torch.distributions.Categorical(logits=f).entropy())
                for z, f in supports
                if f.argmax() == label
            ]
            own = sorted(own, key=lambda support: support[1])[:keep]
            total = sum((z / z.norm() for z, _ in own), torch.zeros(head.in_features))
            columns.append(total / total.norm() if own else total)
        answers.append(inputs[0] @ torch.stack(columns, 1))
    return answers


@pytest.mark.parametrize("keep", [None, 1, 2, 5])
@pytest.mark.parametrize(("network", "layer"), [("cnn18", "linear5"), ("groupnorm", "head"), ("vit", "head")])
def test_the_rule(network: str, layer: str, keep: int | None) -> None:
    model = frozen(network)
    stream = [x for x, _ in batches(network, count=4)] + [batches(network)[0][0][:1]]
    expected = by_the_rule(model, model.get_submodule(layer), stream, keep)
    for name in ("", layer):
        adapter = methods.make("t3a", supports=keep, layer=name).adapter(model, SourceInfo())
        with untouched(model):
            answers = [adapter(batch) for batch in stream]
        for ours, theirs in zip(answers, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("keep", "name"), [(None, "t3a0"), (2, "t3a_k2_0")])
def test_the_authors_figures(keep: int | None, name: str) -> None:
    assert authors.distance(authors.answers(methods.make("t3a", supports=keep)), authors.figure(name)) < 1e-5


def test_rows_that_another_class_claims() -> None:
    """The second row's own argmax is class 0, because of the bias: class 1 has no support at all."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        model.bias.copy_(torch.tensor([5.0, 0.0]))
    for keep in (None, 1):
        answer = methods.make("t3a", supports=keep).adapter(model, SourceInfo())(torch.tensor([[1.0, 2.0]]))
        assert answer[0, 1] == 0 < answer[0, 0]


@pytest.mark.parametrize("keep", [None, 3])
def test_a_batch_that_fails_leaves_no_trace(keep: int | None) -> None:
    model = frozen("groupnorm")
    x = batches("groupnorm")[0][0]
    one, other = (methods.make("t3a", supports=keep).adapter(model, SourceInfo()) for _ in range(2))
    with pytest.raises(BatchError):
        one(torch.full_like(x, 1e38))
    assert torch.equal(one(x), other(x))
    one.reset()
    other.reset()
    assert torch.equal(one(x), other(x))


def test_what_does_not_fit() -> None:
    with pytest.raises(MethodError, match="supports must be a positive integer, got 0"):
        methods.make("t3a", supports=0)
    with pytest.raises(MethodError, match="no linear layer"):
        methods.make("t3a").adapter(nn.Conv2d(3, 2, 1), SourceInfo())
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    with pytest.raises(MethodError, match="name the last layer"):
        methods.make("t3a", layer="0").adapter(model, SourceInfo())(torch.ones(2, 4))


# OFTTA


class Mixed(nn.Module):
    """A BatchNorm layer that weighs the stored statistics, channel by channel."""

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d, stored: float) -> None:
        super().__init__()
        self.layer, self.stored = layer, stored

    def forward(self, x: Tensor) -> Tensor:
        layer, channels = self.layer, []
        if len(x) == x.numel() // x.shape[1] == 1:
            return layer(x)  # a single value has no deviation
        for c in range(x.shape[1]):
            mean = self.stored * layer.running_mean[c] + (1 - self.stored) * x[:, c].mean()
            own = (x[:, c].var(unbiased=False) + layer.eps).sqrt()
            std = self.stored * (layer.running_var[c] + layer.eps).sqrt() + (1 - self.stored) * own
            channels.append((x[:, c] - mean) / std * layer.weight[c] + layer.bias[c])
        return torch.stack(channels, 1)


def mixed(model: nn.Module, stored: list[float]) -> nn.Module:
    model = copy.deepcopy(model)
    names = [n for n, m in model.named_modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))]
    for name, weight in zip(names, stored, strict=True):
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, Mixed(model.get_submodule(name), weight))
    return model


@pytest.mark.parametrize("keep", [2, 1000])
@pytest.mark.parametrize(
    ("network", "layer", "shallow", "deep", "stored"),
    [
        ("cnn18", "linear5", 0.125, 1.0, [0.125, 0.25, 0.5, 1.0]),
        ("cnn18", "linear5", 0.01, 0.64, [0.01, 0.04, 0.16, 0.64]),
        ("mlp", "4", 0.3, 0.9, [0.3]),
    ],
)
def test_oftta(network: str, layer: str, shallow: float, deep: float, stored: list[float], keep: int) -> None:
    model = frozen(network)
    stream = [x for x, _ in batches(network, count=3)] + [batches(network)[0][0][:1]]
    slow = mixed(model, stored)
    expected = by_the_rule(slow, slow.get_submodule(layer), stream, keep)
    adapter = methods.make("oftta", shallow=shallow, deep=deep, supports=keep).adapter(model, SourceInfo())
    with untouched(model):
        answers = [adapter(batch) for batch in stream]
    for ours, theirs in zip(answers, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("network", ["cnn18", "resnet"])
def test_oftta_without_the_batchs_statistics_is_t3a(network: str) -> None:
    model, stream = frozen(network), [x for x, _ in batches(network, count=3)]
    t3a = methods.make("t3a", supports=25).adapter(model, SourceInfo())
    oftta = methods.make("oftta", shallow=1.0, deep=1.0).adapter(model, SourceInfo())
    usual = methods.make("oftta").adapter(model, SourceInfo())
    for x in stream:
        expected = t3a(x)
        torch.testing.assert_close(oftta(x), expected, rtol=1e-4, atol=1e-4)
        assert (usual(x) - expected).abs().max() > 1e-2


def test_oftta_needs_batch_norm() -> None:
    with pytest.raises(MethodError, match="no BatchNorm layer"):
        methods.make("oftta").adapter(frozen("groupnorm"), SourceInfo())
