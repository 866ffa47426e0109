"""A model that is no better than chance, or that diverged, is not handed over without a word."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ttpfl
from tests.helpers.small_clients import CLASSES, clients, mlp, same_state
from ttpfl.federation import TrainSettings, train
from ttpfl.federation.clients.survey import FEWEST, Survey
from ttpfl.federation.training import Finding, diverged
from ttpfl.models.files import read_card

SIZES = (60, 60, 60)


def noise(sizes: tuple[int, ...] = SIZES) -> dict[str, tuple[Tensor, Tensor]]:
    """All samples look the same, so that nothing can be learned but which class is the commonest."""
    generator = torch.Generator().manual_seed(3)
    return {
        f"client-{place}": (torch.zeros(size, 4), torch.randint(CLASSES, (size,), generator=generator))
        for place, size in enumerate(sizes)
    }


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"rounds": 2, "batch_size": 10, "workers": 0, **changes})


def test_a_model_that_learned_says_nothing(tmp_path: Path) -> None:
    trained = train(mlp(), clients(SIZES), settings(rounds=5), run_dir=tmp_path)
    checked = read_card(tmp_path / "model.safetensors")["checked"]
    hits = sum(int((trained.model(x).argmax(1) == y).sum()) for x, y in clients(SIZES).values())
    labels = torch.cat([y for _, y in clients(SIZES).values()])
    assert checked["samples"] == 180
    assert checked["validation_accuracy"] == pytest.approx(hits / 180)
    assert checked["chance"] == pytest.approx(labels.bincount().max().item() / 180)
    assert not checked["at_chance"]


def test_chance_is_said(tmp_path: Path) -> None:
    with pytest.warns(
        ttpfl.ModelWarning, match=r"no better than chance \(accuracy .* predicts class \d for every sample"
    ):
        trained = train(mlp(), noise(), settings(rounds=20), run_dir=tmp_path)
    assert read_card(tmp_path / "model.safetensors")["checked"]["at_chance"]
    assert same_state(trained.model, train(mlp(), noise(), settings(rounds=20, check=False)).model)


def test_divergence_is_said_when_the_model_is_written(tmp_path: Path) -> None:
    with pytest.warns(
        ttpfl.DivergenceWarning, match=r"the loss rose from \d.* to \d.*; lower lr \(it is 30\)"
    ):
        train(mlp(), noise(), settings(lr=30.0), run_dir=tmp_path)
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("lr", [1e-5, 0.3])
def test_a_loss_that_rises_a_little_is_no_divergence(lr: float) -> None:
    """At chance the loss goes up as often as down: a healthy short run must not end with an error."""
    model, data = mlp(), noise()
    labels = torch.cat([y for _, y in data.values()])
    with torch.no_grad():  # where guessing is best, so that any step away from it raises the loss
        model[-1].weight.zero_()
        model[-1].bias.copy_((labels.bincount(minlength=CLASSES) / len(labels)).log())
    with pytest.warns(
        ttpfl.ModelWarning, match=rf"no better than chance .*another lr \(it is {lr:g}\)"
    ) as caught:
        train(model, data, settings(lr=lr, rounds=1, momentum=0.0))
    assert [one.category for one in caught] == [ttpfl.ModelWarning]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (2.31, 2.334, False),
        (2.306, 2.312, False),
        (2.3, 3.4, False),
        (2.3, 3.5, True),
        (0.1, 2.4, False),  # no worse than guessing
        (5.0, 7.0, False),
        (5.0, 8.0, True),
        (2.3, float("nan"), True),
        (2.3, float("inf"), True),
    ],
)
def test_what_divergence_is(before: float, now: float, expected: bool) -> None:
    assert diverged(before, now, classes=10) is expected


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_is_done_is_looked_at_again(tmp_path: Path, workers: int) -> None:
    for resume in (False, True):
        with pytest.warns(ttpfl.DivergenceWarning):
            train(mlp(), noise(), settings(lr=30.0, workers=workers), run_dir=tmp_path, resume=resume)


def test_of_few_samples_nothing_is_said() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(mlp(), noise((30, 30, 30)), settings())
    assert caught == []


def test_only_clients_that_took_part_are_asked() -> None:
    """Of very many clients, those of the last rounds are enough."""

    class Noted(dict[str, Any]):
        seen: set[str] = set()

        def __getitem__(self, name: str) -> Any:
            self.seen.add(name)
            return super().__getitem__(name)

    data = Noted(clients((8,) * 40))
    history = train(mlp(), data, settings(cohort=2)).history
    assert len(history) == 2
    assert 2 <= len(Noted.seen) <= 4


@pytest.mark.parametrize(
    ("right", "labels", "at_chance"),
    [
        (119, [110, 890], True),  # far below the commonest class
        (890, [110, 890], True),
        (915, [110, 890], False),
        (118, [100] * 10, True),  # 10 % and twice a standard error of 0.95 %
        (119, [100] * 10, False),
        (1000, [1000], False),  # one class: nothing to be better than
        (None, [], False),
    ],
)
def test_the_rule(right: int | None, labels: list[int], at_chance: bool) -> None:
    counts = {str(place): count for place, count in enumerate(labels)}
    assert Survey(1000, 1.0, right, counts, counts).at_chance is at_chance


def test_the_rule_needs_some_samples() -> None:
    assert Survey(FEWEST, 1.0, 0, {"0": 50, "1": 50}).at_chance
    assert not Survey(FEWEST - 1, 1.0, 0, {"0": 50, "1": 49}).at_chance


@pytest.mark.parametrize(
    ("before", "now", "remedy"),
    [
        ({"0": 50, "1": 50}, {"1": 100}, "it predicts class 1 for every sample), .* or lower lr (it is 5)"),
        ({"1": 100}, {"1": 100}, "it predicts class 1 for every sample), .* or with another lr (it is 5)"),
    ],
)
def test_a_model_that_came_to_predict_one_class(
    before: dict[str, int], now: dict[str, int], remedy: str
) -> None:
    labels = {"0": 50, "1": 50}
    found = Finding(Survey(100, 70.0, 50, labels, now), Survey(100, 69.0, 50, labels, before))
    with pytest.warns(ttpfl.ModelWarning, match=remedy.replace("(", "\\(").replace(")", "\\)")) as caught:
        found.warn(5.0)
    assert caught[0].category is ttpfl.ModelWarning
