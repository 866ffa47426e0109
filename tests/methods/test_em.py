import pytest
import torch
from torch import Tensor

from tests.helpers import authors, gaussians
from tests.helpers.networks import batches, frozen
from tests.helpers.untouched import untouched
from ttpfl import methods
from ttpfl.errors import MethodError
from ttpfl.methods import SourceInfo, add


def by_the_rule(p0: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Probabilities and the last prior."""
    p = p0
    for _ in range(iterations):
        prior = p.mean(0)
        p = torch.stack([row * prior / (row * prior).sum() for row in p0])
    return p, prior


@pytest.mark.parametrize("iterations", [1, 2, 7])
@pytest.mark.parametrize("network", ["cnn18", "groupnorm", "vit"])
def test_the_rule(network: str, iterations: int) -> None:
    model = frozen(network)
    stream = [x for x, _ in batches(network)] + [batches(network)[0][0][:1]]
    adapter = methods.make("em", iterations=iterations).adapter(model, SourceInfo())
    for x in stream:
        with untouched(model):
            answer = adapter(x)
        torch.testing.assert_close(answer, by_the_rule(model(x).softmax(1), iterations)[0].log())


def test_online_uses_the_mean_of_the_priors_so_far() -> None:
    model = frozen("groupnorm")
    stream = [x for x, _ in batches("groupnorm")] + [batches("groupnorm")[0][0][:3]]
    adapter = methods.make("em-online").adapter(model, SourceInfo())
    priors: list[Tensor] = []
    for x in stream:
        p0 = model(x).softmax(1)
        priors += [by_the_rule(p0, 2)[1]] * len(x)  # every sample counts the same
        p = p0 * torch.stack(priors).mean(0)
        torch.testing.assert_close(adapter(x), (p / p.sum(1, keepdim=True)).log())
    adapter.reset()
    first = methods.make("em").adapter(model, SourceInfo())(stream[0])
    torch.testing.assert_close(adapter(stream[0]), first)


@pytest.mark.parametrize("source", [None, [1.0, 9.0, 3.0, 5.0, 2.0]])
@pytest.mark.parametrize("name", ["em", "em-online"])
def test_pseudo_counts_and_temperature(name: str, source: list[float] | None) -> None:
    """Probabilities, one sample after the other, in double precision."""
    model = frozen("groupnorm").double()
    stream = [x.double() for x, _ in batches("groupnorm")] + [batches("groupnorm")[0][0][:3].double()]
    counts = torch.tensor(source or [1.0] * 5, dtype=torch.float64)
    trained_on = 0.999 * counts / counts.sum() + 0.001 / 5
    method = methods.make(name, source_prior=source is not None, pseudo_counts=6.0, temperature=0.7)
    adapter = method.adapter(model, SourceInfo({"labels": counts}))
    samples, total = 0, torch.zeros(5, dtype=torch.float64)
    for x in stream:
        posterior, prior = (model(x) / 0.7).softmax(1), trained_on
        for _ in range(2):
            rows = [row * prior / trained_on for row in posterior]
            prior = torch.stack([row / row.sum() for row in rows]).mean(0)
        if name == "em":
            samples, total = 0, torch.zeros(5, dtype=torch.float64)
        samples, total = samples + len(x), total + len(x) * prior
        shrunk = (total + 6 * trained_on) / (samples + 6)
        rows = [row * shrunk / trained_on for row in posterior]
        torch.testing.assert_close(adapter(x), torch.stack([row / row.sum() for row in rows]).log())


@pytest.mark.parametrize("name", ["em", "em-online"])
def test_with_many_pseudo_counts_the_models_own_predictions_remain(name: str) -> None:
    model, x = frozen("groupnorm"), batches("groupnorm")[0][0]
    counts = torch.tensor([1.0, 9.0, 3.0, 5.0, 2.0])
    for source_prior in (False, True):
        method = methods.make(name, pseudo_counts=1e6, source_prior=source_prior)
        answer = method.adapter(model, SourceInfo({"labels": counts}))(x)
        torch.testing.assert_close(answer, model(x).log_softmax(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_with_a_source_prior_the_first_step_is_the_models_own_posterior(iterations: int) -> None:
    """Saerens et al. (2002), equations 9 and 10, sample by sample, in double precision."""
    model, x = frozen("groupnorm").double(), batches("groupnorm")[0][0].double()
    counts = torch.tensor([1.0, 9.0, 3.0, 5.0, 2.0], dtype=torch.float64)
    source = 0.999 * counts / counts.sum() + 0.001 / 5  # no class is impossible
    posterior = model(x).softmax(1)
    prior = source
    for _ in range(iterations):
        rows = [row * prior / source for row in posterior]
        prior = torch.stack([row / row.sum() for row in rows]).mean(0)
    expected = torch.stack([row * prior / source / (row * prior / source).sum() for row in posterior])
    method = methods.make("em", iterations=iterations, source_prior=True)
    answer = method.adapter(model, SourceInfo({"labels": counts}))(x)
    torch.testing.assert_close(answer, expected.log())


def test_the_authors_figures() -> None:
    assert authors.distance(authors.answers(methods.make("em")), authors.figure("em0")) < 1e-5


@pytest.mark.parametrize("name", ["em", "em-online"])
@pytest.mark.parametrize("source", [[1 / 3, 1 / 3, 1 / 3], [0.2, 0.2, 0.6]])
def test_a_calibrated_classifier_becomes_calibrated_for_the_client(name: str, source: list[float]) -> None:
    """Proposition 3.1: what is missing is log(q(y) / p(y)); EM has to find q."""
    p, q = torch.tensor(source), torch.tensor([0.7, 0.25, 0.05])
    model, method = gaussians.classifier(p), methods.make(name, iterations=200, source_prior=True)
    clients = [[gaussians.points(p, 5000, seed)] for seed in (1, 2)]
    adapter = method.adapter(model, SourceInfo(add(method.summary(model, client) for client in clients)))
    for seed in (3, 4):
        x, _ = gaussians.points(q, 20_000, seed)
        answer = adapter(x)
        assert (answer.exp().mean(0) - q).abs().max() < 0.01
        right = gaussians.classifier(q)(x).softmax(1)
        assert (answer.exp() - right).abs().mean() < 0.01


def test_without_a_source_prior_nobody_is_asked() -> None:
    assert not methods.make("em").needs_source
    assert methods.make("em").summary(frozen("mlp"), []) == {}
    assert methods.make("em", source_prior=True).needs_source
    with pytest.raises(MethodError, match="label counts"):
        methods.make("em", source_prior=True).adapter(frozen("mlp"), SourceInfo())


def test_classes_that_nobody_has_and_sure_predictions() -> None:
    model, method = gaussians.classifier(torch.ones(3) / 3), methods.make("em", source_prior=True)
    source_info = SourceInfo({"labels": torch.tensor([5.0, 0.0, 1.0])})
    x = torch.tensor([[3000.0, 0.0], [-4000.0, 0.0], [0.1, 0.1]])
    for name in ("em", "em-online"):
        for source in (False, True):
            method = methods.make(name, source_prior=source)
            assert torch.isfinite(method.adapter(model, source_info)(x)).all()


def test_results_from_before_there_were_pseudo_counts_stay_valid() -> None:
    assert methods.make("em").identity() == {"iterations": 2, "source_prior": False}
    changed = methods.make("em", temperature=0.7).identity()
    assert changed == {"iterations": 2, "source_prior": False, "temperature": 0.7}


def test_bad_settings() -> None:
    with pytest.raises(MethodError, match="iterations must be a positive integer, got 0"):
        methods.make("em", iterations=0)
    with pytest.raises(MethodError, match="label 3 is out of range: the model has 3 classes"):
        methods.make("em", source_prior=True).summary(
            gaussians.classifier(torch.ones(3)), [(torch.zeros(1, 2), torch.tensor([3]))]
        )
