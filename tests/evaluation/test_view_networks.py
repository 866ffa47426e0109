"""Networks that flatten with `view` need contiguous images, but images of data sets are channels last."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers import small_population
from ttpfl import data, methods
from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.evaluation import Evaluator, compare, gather
from ttpfl.evaluation.evaluator import plain
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.methods import SourceInfo


class Reshaping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 5, stride=4)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 10)

    def flat(self, maps: Tensor) -> Tensor:
        return maps.reshape(len(maps), -1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flat(F.relu(self.norm(self.conv(x)))))


class Viewing(Reshaping):
    def flat(self, maps: Tensor) -> Tensor:
        return maps.view(len(maps), -1)


class Insisting(Viewing):
    """Fast passes cannot turn its maps round either."""

    def flat(self, maps: Tensor) -> Tensor:
        assert maps.is_contiguous(), "view size is not compatible"
        return super().flat(maps)


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> data.Federated:
    return small_population.population(small_population.made_images(), tmp_path_factory.mktemp("data"))


@pytest.fixture
def evaluator(federated: data.Federated) -> Evaluator:
    return Evaluator(federated.population.target[:1], federated.target_labels, batch_size=32)


def trained(network: nn.Module, federated: data.Federated, fast: bool) -> nn.Module:
    settings = TrainSettings(rounds=2, cohort=2, batch_size=40, lr=0.01, fast=fast, workers=0)
    return train(network, federated.population.source, settings).model.eval()


@pytest.fixture(scope="module", params=[Viewing, Insisting])
def pair(federated: data.Federated, request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module]:
    """The same weights in both networks."""
    reshaping = trained(Reshaping(), federated, fast=True)
    viewing = request.param().eval()
    viewing.load_state_dict(reshaping.state_dict())
    return viewing, reshaping


def test_the_data_are_of_the_kind_that_the_network_cannot_process(
    evaluator: Evaluator, pair: tuple[nn.Module, nn.Module]
) -> None:
    batch = evaluator.stream(0)[0][0]
    assert batch.is_contiguous(memory_format=torch.channels_last)
    with pytest.raises((RuntimeError, AssertionError), match="view size is not compatible"):
        pair[0](batch)
    pair[0](batch.contiguous())


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", [Viewing, Insisting])
def test_training(federated: data.Federated, kind: type[Viewing], fast: bool) -> None:
    viewing, reshaping = (trained(net, federated, fast).state_dict() for net in (kind(), Reshaping()))
    torch.testing.assert_close(viewing, reshaping, rtol=1e-4, atol=1e-5)


def test_learning_rates(federated: data.Federated, pair: tuple[nn.Module, nn.Module]) -> None:
    settings = LearnSettings(rounds=2, cohort=2, batch_size=20, workers=0)
    found = [learn(model, federated.population.source, settings).rates.values for model in pair]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_personalizing(evaluator: Evaluator, pair: tuple[nn.Module, nn.Module], rate: float) -> None:
    batches = evaluator.stream(0)[0][:2]
    answers = []
    for model in pair:
        adapter = Personalizer(model, Rates.zeros(model).with_values(torch.full((8,), rate)))
        answers.append([logits for batch in batches for logits in (adapter(batch), adapter.predict(batch))])
    torch.testing.assert_close(*answers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", methods.names())
def test_comparing_every_method(
    federated: data.Federated, evaluator: Evaluator, pair: tuple[nn.Module, nn.Module], name: str
) -> None:
    method = methods.make(name)
    figures = []
    for model in pair:
        summary = gather(method, model, federated.population.source[:1], 20, workers=0)
        rates = {
            kind: Rates.zeros(model, only=only)
            for kind, only in (("all", None), ("params", "params"), ("stats", "stats"))
        }
        for one in rates.values():
            one.values += 0.01
        compared = compare(model, evaluator, [(method, SourceInfo(summary, rates))], workers=0)
        figures.append([*compared.of(name), *compared.of(name, "loss"), *compared.of(name, "entropy")])
    assert figures[0]
    assert figures[0] == pytest.approx(figures[1], rel=1e-3)


def test_a_model_that_does_not_adapt(evaluator: Evaluator, pair: tuple[nn.Module, nn.Module]) -> None:
    viewing, reshaping = (evaluator.of_model(model) for model in pair)
    assert viewing == pytest.approx(reshaping)
    batches = evaluator.stream(0)[0]
    kept = copy.deepcopy(batches)
    predict = plain(pair[0])
    for batch, before in zip(batches, kept, strict=True):
        torch.testing.assert_close(predict(batch), pair[0](batch.contiguous()).detach())
        assert torch.equal(batch, before)
