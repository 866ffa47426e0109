import math

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.networks import batches, frozen
from tests.helpers.untouched import untouched
from ttpfl import methods
from ttpfl.errors import MethodError
from ttpfl.methods import SourceInfo
from ttpfl.methods.head import Head


def alike(features: Tensor, affinity: str, neighbours: int) -> Tensor:
    """Entry by entry, in double precision."""
    features = features.double() / features.double().norm(dim=1, keepdim=True).clamp(min=1e-12)
    size = len(features)
    distance = torch.tensor([[(a - b).norm() for b in features] for a in features], dtype=torch.float64)
    ranked = [sorted(row.tolist()) for row in distance]
    width = sum(row[min(neighbours, size) - 1] for row in ranked) / size
    w = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        others = sorted((j for j in range(size) if j != i), key=lambda j: distance[i, j])
        for j in range(size):
            if affinity == "knn":
                w[i, j] = j in others[:neighbours]
            elif affinity == "linear":
                w[i, j] = features[i] @ features[j]
            elif i == j or distance[i, j] == 0:
                w[i, j] = 1
            else:
                w[i, j] = math.exp(-(float(distance[i, j]) ** 2) / (2 * width**2)) if width else 0
    return w


def by_the_rule(features: Tensor, logits: Tensor, affinity: str, neighbours: int, steps: int = 100) -> Tensor:
    """Boudiaf and others, equations 4 to 6, in double precision."""
    w, p = alike(features, affinity, neighbours), logits.double().softmax(1)
    unary = -(p + 1e-10).log()
    y, before = (-unary).softmax(1), math.inf
    for step in range(steps):
        pairwise = w @ y
        y = (-unary + pairwise).softmax(1)
        energy = float((y * (unary - pairwise + y.clip(1e-20).log())).sum())
        if step > 1 and abs(energy - before) <= 1e-8 * abs(before):
            break
        before = energy
    return y


@pytest.mark.parametrize(
    ("affinity", "neighbours"),
    [("rbf", 1), ("rbf", 3), ("rbf", 5), ("rbf", 100), ("knn", 1), ("knn", 5), ("knn", 100), ("linear", 5)],
)
@pytest.mark.parametrize("network", ["cnn18", "groupnorm", "vit"])
def test_the_rule(network: str, affinity: str, neighbours: int) -> None:
    model = frozen(network)
    method = methods.make("lame", affinity=affinity, neighbours=neighbours)
    adapter = method.adapter(model, SourceInfo())
    for x in [x for x, _ in batches(network, size=12)] + [batches(network)[0][0][:2]]:
        features, logits = Head(model).features_and_logits(x)
        with untouched(model):
            answer = adapter(x)
        expected = by_the_rule(features, logits, affinity, neighbours).float()
        torch.testing.assert_close(answer.exp(), expected, rtol=1e-4, atol=1e-5)


def test_one_image_has_no_neighbours() -> None:
    model, x = frozen("groupnorm"), batches("groupnorm")[0][0][:1]
    answer = methods.make("lame", affinity="knn").adapter(model, SourceInfo())(x)
    torch.testing.assert_close(answer, model(x).log_softmax(1), rtol=1e-4, atol=1e-5)
    for affinity in ("rbf", "linear"):  # it agrees with itself, and becomes surer
        answer = methods.make("lame", affinity=affinity).adapter(model, SourceInfo())(x)
        assert answer.argmax() == model(x).argmax()


def test_it_ends_where_it_would_stay() -> None:
    model, x = frozen("cnn18"), batches("cnn18", size=20)[0][0]
    features, logits = Head(model).features_and_logits(x)
    y = methods.make("lame", steps=10_000).adapter(model, SourceInfo())(x).exp()
    settled = by_the_rule(features, logits, "rbf", neighbours=5, steps=20_000).float()
    assert (y - settled).abs().max() < 1e-3
    few = methods.make("lame", steps=1).adapter(model, SourceInfo())(x).exp()
    assert (few - settled).abs().max() > 0.01


@torch.no_grad()
def test_neighbours_convince_a_doubter() -> None:
    model = nn.Linear(2, 2, bias=False)
    model.weight.copy_(torch.eye(2))
    x = torch.tensor([[3.0, 2.8], [3.0, 2.7], [2.8, 2.7], [2.7, 2.75]])  # the last one leans to class 1
    assert model(x).argmax(1).tolist() == [0, 0, 0, 1]
    for affinity in ("knn", "rbf", "linear"):
        adapter = methods.make("lame", affinity=affinity, neighbours=3).adapter(model, SourceInfo())
        assert adapter(x).argmax(1).tolist() == [0] * 4


@torch.no_grad()
def test_equal_images_and_sure_predictions() -> None:
    model = nn.Linear(2, 2, bias=False)
    model.weight.copy_(torch.eye(2))
    for affinity in ("knn", "rbf", "linear"):
        adapter = methods.make("lame", affinity=affinity).adapter(model, SourceInfo())
        for x in (torch.ones(6, 2), torch.zeros(3, 2), torch.tensor([[1e4, -1e4], [-1e4, 1e4]])):
            assert torch.isfinite(adapter(x)).all()


def test_bad_settings() -> None:
    for name in ("neighbours", "steps"):
        with pytest.raises(MethodError, match=f"{name} must be a positive integer, got 0"):
            methods.make("lame", **{name: 0})
    with pytest.raises(MethodError, match="affinity must be 'rbf', 'knn' or 'linear', got 'cosine'"):
        methods.make("lame", affinity="cosine")
