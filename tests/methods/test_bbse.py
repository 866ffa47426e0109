from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers import authors, gaussians
from tests.helpers.networks import CLASSES, batches, frozen
from tests.helpers.untouched import untouched
from ttpfl import methods
from ttpfl.errors import MethodError
from ttpfl.methods import SourceInfo, add, bbse
from ttpfl.methods.base import Summary
from ttpfl.methods.prior import inverse, on_simplex


def nearest_distribution(point: np.ndarray) -> np.ndarray:
    """By bisection: the shift after which the positive parts sum to one."""
    low, high = point.min() - 1, point.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(point - middle, 0, None).sum() > 1 else (low, middle)
    return np.clip(point - high, 0, None)


def by_the_rule(
    logits: Tensor,
    source: list[tuple[Tensor, Tensor]],
    soft: bool,
    before: tuple[Tensor, ...] = (),
    pseudo_counts: float = 0.0,
    temperature: float = 1.0,
) -> Tensor:
    """`source` has logits and labels; `before` are the logits of earlier batches that count as well."""

    def guesses(logits: Tensor) -> np.ndarray:
        p = logits.softmax(1).numpy() if soft else np.eye(logits.shape[1])[logits.argmax(1).numpy()]
        return p.astype(np.float64)

    classes = logits.shape[1]
    confusion = np.zeros((classes, classes))
    for output, labels in source:
        for guess, label in zip(guesses(output), labels.tolist(), strict=True):
            confusion[:, label] += guess
    confusion = confusion / confusion.sum(0)
    seen = torch.cat([*before, logits])
    prior = nearest_distribution(np.linalg.pinv(confusion) @ guesses(seen).mean(0))
    prior = (len(seen) * prior + pseudo_counts / classes) / (len(seen) + pseudo_counts)
    return logits / temperature + torch.from_numpy(np.log(0.999 * prior + 0.001 / classes)).float()


@pytest.mark.parametrize("config", [{}, {"pseudo_counts": 12.0, "temperature": 0.7}], ids=str)
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("name", ["bbse", "bbse-online"])
@pytest.mark.parametrize("network", ["cnn18", "groupnorm"])
def test_the_rule(network: str, name: str, soft: bool, config: dict[str, float]) -> None:
    model, method = frozen(network), methods.make(name, soft=soft, **config)
    data = [x * 4 for x, _ in batches(network, count=6, size=30)]  # so far apart that predictions differ
    draw = torch.Generator().manual_seed(2)
    other = torch.randint(CLASSES, (6, 30), generator=draw)  # labels are right for two thirds, or so
    source = [
        (x, torch.where(torch.rand(30, generator=draw) < 0.6, model(x).argmax(1), labels))
        for x, labels in zip(data, other, strict=True)
    ]
    model.train()
    with untouched(model):  # it may be in training mode
        source_info = SourceInfo(add(method.summary(model, [pair]) for pair in source))
    model.eval()
    assert (
        source_info.summary["hard"].sum(0).tolist() == torch.cat([y for _, y in source]).bincount().tolist()
    )
    adapter, before = method.adapter(model, source_info), []
    for x in (data[0], data[1][:7], data[2][:1]):
        outputs = [(model(x), y) for x, y in source]
        earlier = tuple(before) if name == "bbse-online" else ()
        expected = by_the_rule(model(x), outputs, soft, earlier, **config)
        torch.testing.assert_close(adapter(x), expected, rtol=1e-3, atol=1e-3)
        before.append(model(x))


@pytest.mark.parametrize("config", [{}, {"soft": True, "source_prior": True, "pseudo_counts": 5.0}], ids=str)
def test_online_the_first_batch_is_as_any_batch_and_later_ones_depend_on_all(config: dict[str, Any]) -> None:
    balanced, shifted = torch.ones(3) / 3, torch.tensor([0.6, 0.3, 0.1])
    model = gaussians.classifier(balanced)
    stream = [gaussians.points(prior, 12, seed=2)[0] for prior in (balanced, shifted, shifted.flip(0))]
    method, online = methods.make("bbse", **config), methods.make("bbse-online", **config)
    source_info = SourceInfo(method.summary(model, [gaussians.points(balanced, 500)]))
    alone, adapter = method.adapter(model, source_info), online.adapter(model, source_info)
    assert torch.equal(adapter(stream[0]), alone(stream[0]))
    rest = [adapter(x) for x in stream[1:]]
    assert not torch.equal(rest[-1], alone(stream[-1]))
    together = alone(torch.cat(stream))[-len(stream[-1]) :]
    torch.testing.assert_close(rest[-1], together, rtol=1e-4, atol=1e-4)
    adapter.reset()
    assert torch.equal(adapter(stream[0]), alone(stream[0]))


def test_with_many_pseudo_counts_nothing_changes() -> None:
    source, target = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.1, 0.3, 0.6])
    model, (x, _) = gaussians.classifier(source), gaussians.points(target, 20)
    for source_prior in (False, True):
        method = methods.make("bbse", pseudo_counts=1e7, uniform=1e-9, source_prior=source_prior)
        source_info = SourceInfo(method.summary(model, [gaussians.points(source, 500)]))
        answer = method.adapter(model, source_info)(x)
        torch.testing.assert_close(answer.log_softmax(1), model(x).log_softmax(1), rtol=1e-4, atol=1e-4)


def authors_summary(model: nn.Module) -> Summary:
    return add(methods.make("bbse").summary(model, authors.batches(client)) for client in range(3))


def test_the_authors_figures_of_soft_predictions() -> None:
    method, summary = methods.make("bbse", soft=True), authors_summary(authors.model())
    ours = inverse(summary["soft"], method.cutoff)
    assert authors.distance(ours, authors.figure("bbse_pinv_soft")) < 1e-4
    answers = authors.answers(method, SourceInfo(summary))
    assert authors.distance(answers, authors.figure("bbse_soft0")) < 1e-5


def test_the_authors_figures_of_hard_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The authors cut off nothing, and this matrix is singular: rounding errors decide on its inverse.

    So the answers are compared with the inverse that they had, and ours has to be an inverse at all.
    """
    summary = authors_summary(authors.model())
    theirs = authors.figure("bbse_pinv_hard")
    columns = (summary["hard"] / summary["hard"].sum(0)).numpy()
    assert np.linalg.matrix_rank(columns, tol=1e-9) < 10
    assert theirs.abs().max() > 1e12
    ours = inverse(summary["hard"], methods.make("bbse").cutoff).double().numpy()
    assert np.abs(columns @ ours @ columns - columns).max() < 1e-4
    assert np.abs(ours).max() < 1e5
    monkeypatch.setattr(bbse, "inverse", lambda counts, cutoff: theirs)
    answers = authors.answers(methods.make("bbse"), SourceInfo(summary))
    assert authors.distance(answers, authors.figure("bbse_hard0")) < 1e-5


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("source", [[1 / 3, 1 / 3, 1 / 3], [0.2, 0.2, 0.6]])
def test_a_calibrated_classifier_becomes_calibrated_for_the_client(soft: bool, source: list[float]) -> None:
    """Proposition 3.1: what is added is log(q(y) / p(y))."""
    p, q = torch.tensor(source), torch.tensor([0.7, 0.25, 0.05])
    model, method = gaussians.classifier(p), methods.make("bbse", soft=soft, source_prior=True)
    clients = [[gaussians.points(p, 20_000, seed)] for seed in (1, 2)]
    adapter = method.adapter(model, SourceInfo(add(method.summary(model, client) for client in clients)))
    x, _ = gaussians.points(q, 20_000, seed=3)
    added = (adapter(x) - model(x)).detach()
    assert (added - added[0]).abs().max() < 1e-4
    assert (added[0].exp() * p - q).abs().max() < 0.02


def prior_found(confusion: list[list[float]], x: Tensor, **config: float) -> Tensor:
    model = gaussians.classifier(torch.ones(3) / 3)
    method = methods.make("bbse", **config)
    adapter = method.adapter(model, SourceInfo({"hard": torch.tensor(confusion)}))
    prior = (adapter(x) - model(x)).detach()[0].exp()
    assert torch.isfinite(prior).all()
    assert prior.sum().item() == pytest.approx(1, abs=1e-5)
    return prior


def test_classes_that_the_model_cannot_tell_apart_share_their_prior() -> None:
    x, _ = gaussians.points(torch.tensor([0.5, 0.25, 0.25]), 2000)
    prior = prior_found([[8, 0, 0], [1, 5, 50], [1, 5, 50]], x)
    assert prior[1].item() == pytest.approx(prior[2].item(), abs=1e-4)
    assert prior[0] > 0.4


def test_a_nearly_singular_matrix_is_cut_off() -> None:
    """Two columns differ by chance alone; undoing that would put all on one of the two classes."""
    x, _ = gaussians.points(torch.tensor([0.2, 0.42, 0.38]), 2000)
    confusion = [[980.0, 10, 10], [10, 496, 495], [10, 494, 495]]
    wild, tame = prior_found(confusion, x, cutoff=1e-6), prior_found(confusion, x, cutoff=0.01)
    assert (wild[1:] - 0.4).abs().max() > 0.35
    assert (tame[1:] - 0.4).abs().max() < 0.05


@pytest.mark.parametrize("cutoff", [1e-6, 0.0])
def test_classes_that_no_source_client_has(cutoff: float) -> None:
    x, _ = gaussians.points(torch.tensor([0.5, 0.5, 0.0]), 2000)
    prior = prior_found([[9, 1, 0], [1, 9, 0], [0, 0, 0]], x, cutoff=cutoff)
    assert prior[2].item() == pytest.approx(0.001 / 3, rel=0.05)
    assert prior[:2].tolist() == pytest.approx([0.5, 0.5], abs=0.05)
    one = prior_found([[9, 0, 0], [1, 0, 0], [0, 0, 0]], x)
    assert one[0] > 0.9


def test_projection_to_the_simplex() -> None:
    draw = torch.Generator().manual_seed(0)
    for scale in (0.1, 1, 10, 1e12):
        for _ in range(20):
            point = scale * torch.randn(6, generator=draw)
            ours = on_simplex(point)
            assert ours.sum().item() == pytest.approx(1, abs=1e-5)
            if scale < 1e6:
                assert np.abs(ours.numpy() - nearest_distribution(point.double().numpy())).max() < 1e-5


def test_what_does_not_fit() -> None:
    model = frozen("mlp")
    with pytest.raises(MethodError, match="confusion matrix"):
        methods.make("bbse").adapter(model, SourceInfo())
    adapter = methods.make("bbse").adapter(model, SourceInfo({"hard": torch.eye(3)}))
    with pytest.raises(MethodError, match="has 3 classes, the model has 5"):
        adapter(torch.zeros(2, 6))
    for config, message in (
        ({"uniform": 0.0}, "uniform must be a number above 0 and at most 1, got 0.0"),
        ({"cutoff": 1.0}, "cutoff must be a number of at least 0 and below 1, got 1.0"),
    ):
        with pytest.raises(MethodError, match=message):
            methods.make("bbse", **config)
    assert methods.make("bbse").summary(model, []) == {}
