"""Rates within a compute budget."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.federation.test_search_run import shifted, skewed, trained
from tests.helpers.small_clients import CLASSES, FEATURES
from ttpfl.core.learning import adapted_tally
from ttpfl.core.levels import COSTS
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.errors import FederationError, RatesError
from ttpfl.federation import LearnSettings, learn

LEVELS = {1.1: "head", 1.2: "head", 2.0: "forward", 3.9: "forward", 4.0: None, 50.0: None}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.set_num_threads(1)
    return trained()


class Halved(nn.Module):
    """Logits that no layer returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits / 2


@pytest.mark.parametrize(("budget", "level"), LEVELS.items())
def test_a_budget_chooses_the_modules(model: nn.Module, budget: float, level: Any) -> None:
    rates = ttpfl.learn_rates(model, skewed(), batch_size=8, rounds=3, budget=budget, prior=True)
    assert rates.only == level
    assert rates.cost <= budget
    assert rates.learned["budget"] == budget
    assert rates.names == Rates.zeros(model, only=level, prior=rates.prior).names
    assert set(rates.names) >= {"label_prior", f"{rates.head}.weight"}
    statistics = [spec.name for spec in rates.modules if spec.statistic]
    assert bool(statistics) == (level != "head")


def test_a_larger_budget_has_a_lower_loss_at_source_clients(model: nn.Module) -> None:
    """Levels are nested, so the search can only find more."""
    losses = []
    for budget in COSTS.values():
        rates, clients = ttpfl.learn_rates(model, shifted(), batch_size=8, budget=budget), shifted().values()
        twin = Twin(model, rates.modules)
        losses.append(sum(adapted_tally(twin, rates, [client], "batch").mean_loss for client in clients))
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0.9}, "budget must be a number of at least 1.1, in forward passes, got 0.9"),
        ({"budget": 1}, "budget must be a number of at least 1.1"),
        ({"budget": float("nan")}, "budget must be a number of at least 1.1"),
        (
            {"budget": 2, "only": "stats"},
            "budget=2 and only='stats' both choose the modules: leave out either",
        ),
        ({"budget": 2, "only": "all"}, "budget=2 and only='all' both choose the modules"),
    ],
)
def test_budgets_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(FederationError, match=message):
        LearnSettings(**options)


def test_initial_rates_must_be_those_of_the_budget(model: nn.Module) -> None:
    fitting = Rates.zeros(model, only="head")
    assert ttpfl.learn_rates(model, shifted(), rounds=2, budget=1.2, rates=fitting).only == "head"
    with pytest.raises(
        FederationError, match="budget=2 means 'forward', but the initial rates are for 'head'"
    ):
        ttpfl.learn_rates(model, shifted(), budget=2, rates=fitting)


@pytest.mark.parametrize("only", ["head", "forward"])
def test_networks_without_a_last_layer(model: nn.Module, only: Any) -> None:
    halved = Halved(model)
    with pytest.raises(
        FederationError, match=r"no linear layer returned the logits\. only='\w+' needs a last"
    ):
        learn(halved, shifted(), LearnSettings(batch_size=8, only=only, workers=0))
    with pytest.raises(RatesError, match=r"Sequential has no suitable layer\. only='\w+' needs a last layer"):
        Rates.zeros(nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2), nn.Flatten()), only=only)
    everything = learn(halved, shifted(), LearnSettings(batch_size=8, rounds=2, workers=0)).rates
    assert everything.only is None


def test_a_readout_may_return_the_output_of_the_last_layer() -> None:
    """The layer is found by its output, not by its position."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores, self.other = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, 2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"other": self.other(x), "scores": self.scores(x)}

    torch.manual_seed(0)
    model, options = Named(), {"rounds": 3, "batch_size": 8, "logits": lambda output: output["scores"]}
    rates = ttpfl.learn_rates(model, shifted(), budget=1.1, **options)
    assert rates.head == "scores"
    assert rates.names == ("scores.weight", "scores.bias")


def test_rates_of_a_level_survive_a_file(model: nn.Module, tmp_path: Path) -> None:
    rates = ttpfl.learn_rates(model, skewed(), batch_size=8, rounds=4, budget=2, prior=True, check=False)
    rates.save(tmp_path / "rates.safetensors")
    loaded = Rates.load(tmp_path / "rates.safetensors", model=model)
    assert (loaded.only, loaded.head, loaded.cost) == ("forward", rates.head, 2.0)
    assert "a batch costs about 2 forward passes" in str(loaded)
    assert loaded.table().endswith("a batch costs about 2 forward passes")
    assert torch.equal(loaded.values, rates.values)
    x = next(iter(skewed().values()))[0]
    personal = [ttpfl.Personalizer(model, one, "online") for one in (rates, loaded)]
    assert torch.equal(personal[0](x), personal[1](x))


@pytest.mark.parametrize("budget", [1.1, 2.0])
def test_resuming_and_workers(model: nn.Module, budget: float, tmp_path: Path) -> None:
    data, options = skewed(), {"batch_size": 8, "budget": budget, "prior": True, "check": False}
    whole = learn(model, data, LearnSettings(workers=0, **options))
    learn(model, data, LearnSettings(rounds=3, workers=0, **options), run_dir=tmp_path)
    resumed = learn(model, data, LearnSettings(workers=2, **options), run_dir=tmp_path, resume=True)
    assert whole.rates.values.any()
    assert torch.equal(resumed.rates.values, whole.rates.values)
    assert resumed.rates.head == whole.rates.head
    with pytest.raises(FederationError, match="budget"):
        learn(
            model, data, LearnSettings(batch_size=8, prior=True, check=False), run_dir=tmp_path, resume=True
        )


def test_sgd_takes_a_budget(model: nn.Module) -> None:
    rates = ttpfl.learn_rates(model, shifted(), batch_size=8, rounds=2, lr=0.1, budget=1.5)
    assert rates.only == "head"
    assert rates.cost == 1.1


def test_costs_follow_from_the_rates(model: nn.Module) -> None:
    """A rate of zero costs nothing, whatever the rates were learned for."""
    rates = Rates.zeros(model, prior=[1 / CLASSES] * CLASSES)

    def cost(*moving: str) -> float:
        return rates.with_values(torch.tensor([float(name in moving) for name in rates.names])).cost

    statistic = next(spec.name for spec in rates.modules if spec.statistic)
    first, head = rates.names[0], f"{rates.head}.bias"
    assert [cost(), cost("label_prior"), cost(head), cost(head, "label_prior")] == [1.0, 1.1, 1.1, 1.1]
    assert [cost(statistic), cost(statistic, head), cost(first)] == [2.0, 2.0, 4.0]
