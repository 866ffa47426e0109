"""How far source clients differ in their classes, with clients drawn from a known distribution."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ttpfl.core.label_prior import weighted_prediction
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings
from ttpfl.federation.common.jobs import ClientResult, Job
from ttpfl.federation.common.state import RunState
from ttpfl.federation.server.credibility import FEWEST, MOST, assumed_counts
from ttpfl.federation.server.rate_servers import SearchServer
from ttpfl.federation.server.robust import Average

MEAN = Average()


def drawn(concentration: float, clients: int, samples: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Mean labels of clients whose class frequencies follow a Dirichlet distribution."""
    torch.manual_seed(seed)
    base = torch.tensor([0.4, 0.3, 0.2, 0.1])
    frequencies = torch.distributions.Dirichlet(concentration * base).sample((clients,))
    labels = torch.distributions.Categorical(frequencies[:, None]).sample((samples,)).reshape(samples, -1).T
    rows = torch.stack([weighted_prediction(F.one_hot(each, 4).float()) for each in labels])
    return rows, torch.full((clients,), samples)


@pytest.mark.parametrize("concentration", [3.0, 10.0, 50.0])
@pytest.mark.parametrize("samples", [20, 200])
def test_the_concentration_of_a_dirichlet_distribution(concentration: float, samples: int) -> None:
    """There, within / between is exactly the sum of the parameters."""
    found = assumed_counts(*drawn(concentration, 4000, samples), MEAN)
    assert float(found.sum()) == pytest.approx(concentration, rel=0.15)
    # Three standard errors of a mean over 4000 clients.
    torch.testing.assert_close(found / found.sum(), torch.tensor([0.4, 0.3, 0.2, 0.1]), rtol=0, atol=0.015)


def test_it_minimises_the_error_of_the_estimated_frequencies() -> None:
    """With new clients of the same kind, other numbers of assumed samples are worse."""
    concentration, samples = 8.0, 10
    prior = assumed_counts(*drawn(concentration, 3000, 30), MEAN)
    torch.manual_seed(1)
    base = torch.tensor([0.4, 0.3, 0.2, 0.1])
    truth = torch.distributions.Dirichlet(concentration * base).sample((3000,))
    counts = torch.distributions.Multinomial(samples, truth).sample()

    def error(assumed: Tensor) -> float:
        estimate = (counts + assumed) / (samples + assumed.sum())
        return float((estimate - truth).square().sum(1).mean())

    assert error(prior) < min(error(prior / 3), error(prior * 3))
    assert error(prior) == pytest.approx(error(concentration * base), rel=0.01)


def test_clients_that_are_alike_make_it_large_and_it_has_limits() -> None:
    alike = torch.full((10, 2), 0.5)
    assert float(assumed_counts(alike, torch.full((10,), 100), MEAN).sum()) == pytest.approx(MOST)
    opposite = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(assumed_counts(opposite, torch.tensor([50, 50]), MEAN).sum()) == pytest.approx(FEWEST)


@pytest.mark.parametrize("kind", ["median", "trimmed", "krum"])
def test_a_byzantine_client_cannot_spoil_it(kind: str) -> None:
    rows, samples = drawn(5.0, 40, 100)
    honest = assumed_counts(rows, samples, MEAN)
    rows[0] = torch.tensor([-1e30, 1e30, 0.0, 0.0])
    found = assumed_counts(rows, samples, Average(kind, 0.1))
    assert found.isfinite().all()
    assert found.sum() < 30 * honest.sum()
    assert (found / found.sum()).max() < 0.95


def test_a_single_client_is_believed_to_be_like_all() -> None:
    found = assumed_counts(torch.tensor([[0.75, 0.25]]), torch.tensor([40]), MEAN)
    torch.testing.assert_close(found, torch.tensor([0.75, 0.25]) * MOST)


@pytest.mark.parametrize("kind", ["mean", "median"])
def test_replies_do_not_choose_the_rates_of_the_next_round(kind: str) -> None:
    """After the round that gathers predictions, rates of zero are tried, whatever a client replies."""
    rates = Rates.zeros(torch.nn.Linear(3, 2), prior=[0.0, 0.0])
    server = SearchServer(rates, LearnSettings(prior=True, average=kind), 3)
    server.begin(RunState(torch.zeros(5)))
    for client in range(3):
        vector = torch.tensor([500.0, 0.0, 0.0, 0.6, 0.4])
        report = {"validation": {"samples": 10, "loss": 7.0, "right": 5}}
        server.add(ClientResult(Job(client, str(client), 0), vector, report, None))
    assert not server.finish()[:3].any()
