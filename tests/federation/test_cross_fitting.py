"""Rates that are learned with models that have not seen a client."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ttpfl
from tests.helpers.persons import write_signals
from ttpfl.errors import FederationError
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import read
from ttpfl.experiment.run import run
from ttpfl.experiment.stages import model, rates
from ttpfl.experiment.store import Store
from ttpfl.federation import LearnSettings, TrainSettings, learn, train, train_unseen
from ttpfl.federation.cross_fitting import without

HERE = LearnSettings(rounds=3, batch_size=8, workers=0, check=False)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()


def clients(count: int = 5) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    pairs = [(torch.randn(24, 4) + number, torch.randint(3, (24,))) for number in range(count)]
    return [(x, (x.sum(1) > y).long() + y // 2) for x, y in pairs]


def test_copies_of_the_model_change_nothing() -> None:
    same = network(0)
    alone = learn(same, clients(), HERE)
    copies = learn(same, clients(), HERE, unseen=[same, same, same])
    assert copies.rates.values.any()
    assert torch.equal(alone.rates.values, copies.rates.values)


def test_a_client_measures_with_the_model_that_has_not_seen_it() -> None:
    """The loss without adaptation is that of each client with its own model, by plain torch."""
    models, data = [network(seed) for seed in range(3)], clients()
    with torch.no_grad():
        losses = [float(F.cross_entropy(models[i % 3](x), y)) for i, (x, y) in enumerate(data)]
    found = learn(network(7), data, HERE, unseen=models[:3]).rates
    assert found.learned["checked"]["plain_loss"] == pytest.approx(sum(losses) / 5, rel=1e-5)
    assert torch.equal(
        ttpfl.learn_rates(network(7), data, 3, batch_size=8, unseen=models, check=False).values, found.values
    )


@pytest.mark.parametrize("named", [False, True])
def test_models_are_trained_without_their_part(named: bool) -> None:
    data, settings = clients(), TrainSettings(rounds=2, batch_size=8, workers=0, check=False)
    given = dict(zip("abcde", data, strict=True)) if named else data
    unseen = train_unseen(network(0), given, settings, parts=2)
    for one, kept in zip(unseen, ([1, 3], [0, 2, 4]), strict=True):
        wanted = train(network(0), [data[number] for number in kept], settings).model.state_dict()
        for name, tensor in one.state_dict().items():
            assert torch.equal(tensor, wanted[name])


def test_there_must_be_a_client_for_every_part() -> None:
    with pytest.raises(FederationError, match="parts is 6, but there are only 5 clients"):
        train_unseen(network(0), clients(), parts=6)
    with pytest.raises(FederationError, match="parts must be an integer of at least 2, got 1"):
        without(clients(), 0, 1)


RECIPE = """
methods = ["none", "atp-batch"]
data = { name = "arrays", folds = 3 }
model = { name = "signal_cnn" }
train = { rounds = 2, batch_size = 8 }
learn = { rounds = 2, batch_size = 8, cross_fit = 2, check = false }
[[entries]]
label = "seen"
method = "atp-batch"
rates.learn.cross_fit = 0
"""


def test_a_recipe_with_cross_fitting(tmp_path: Path) -> None:
    """Its rates are those of the same steps in Python; the model that is compared has seen all clients."""
    write_signals(tmp_path / "data")
    (tmp_path / "own.toml").write_text(RECIPE)
    recipe = read(tmp_path / "own.toml")
    context = ExperimentContext(Store(tmp_path / "stages"), tmp_path / "data", workers=0)
    (one,) = run(recipe, context, tmp_path / "out")["runs"]
    assert [entry["label"] for entry in one["entries"]] == ["none", "atp-batch", "seen"]
    assert one["config"]["learn.cross_fit"] == 2
    config = recipe.config("", 0)
    source = context.clients(config).population.source
    unseen = [model(context, config, part) for part in range(2)]
    full = model(context, config)
    wanted = learn(full, source, replace(HERE, rounds=2), unseen=unseen).rates
    assert torch.equal(rates(context, config).values, wanted.values)
    seen = learn(full, source, replace(HERE, rounds=2)).rates
    assert not torch.equal(seen.values, wanted.values)
    for part, trained in enumerate(unseen):
        ids = [client.id for client in without(source, part, 2)]
        assert len(ids) == 2
        assert not torch.equal(trained.conv1.weight, full.conv1.weight)
