"""Rates that do harm to the clients that they were learned from are noticed; diverged ones are refused."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import ttpfl
from tests.helpers.networks import CLASSES, NETWORKS, batches, make
from ttpfl.core.learning import recent_clients
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates_check import Candidate, verdict
from ttpfl.errors import FederationError
from ttpfl.federation import LearnSettings, learn

HARM = {"rounds": 6, "lr": 4.0, "batch_size": 4}  # steps so large that the loss jumps up and down


def clients(name: str = "cnn18", count: int = 4, samples: int = 11) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(5)
    return [(NETWORKS[name][1](samples), torch.randint(CLASSES, (samples,))) for _ in range(count)]


def loss_of(
    model: torch.nn.Module, rates: ttpfl.Rates, data: list[tuple[Tensor, Tensor]]
) -> tuple[float, int]:
    """Mean loss and right answers, as a user would find them."""
    total, right, personal = 0.0, 0, ttpfl.Personalizer(model, rates)
    for x, y in data:
        for start in range(0, len(y), HARM["batch_size"]):
            part = slice(start, start + HARM["batch_size"])
            logits = personal(x[part])
            total += F.cross_entropy(logits, y[part], reduction="sum").item()
            right += int((logits.argmax(1) == y[part]).sum())
    return total / sum(len(y) for _, y in data), right


def test_harmful_rates_are_not_returned_without_a_word() -> None:
    model, data = make("cnn18"), clients()
    last = ttpfl.learn_rates(model, data, check=False, **HARM)
    with pytest.warns(
        ttpfl.RatesWarning, match=r"the last round \(6\) are worse than no adaptation .*lower lr"
    ):
        rates = ttpfl.learn_rates(model, data, **HARM)
    (plain, right), (bad, _), (better, hits) = (
        loss_of(model, one, data) for one in (ttpfl.Rates.zeros(model), last, rates)
    )
    assert better <= plain < bad
    checked = rates.learned["checked"]
    assert checked["round"] == rates.learned["rounds"] < checked["last_round"] == 6
    assert math.isclose(checked["plain_loss"], plain, rel_tol=1e-5)
    assert math.isclose(checked["adapted_loss"], better, rel_tol=1e-5)
    assert math.isclose(checked["plain_accuracy"], right / 44)
    assert math.isclose(checked["adapted_accuracy"], hits / 44)
    assert checked["samples"] == 44
    assert "checked" not in last.learned


def test_the_best_round_is_one_of_the_rounds() -> None:
    model, data = make("cnn18"), clients()
    with pytest.warns(ttpfl.RatesWarning):
        rates = ttpfl.learn_rates(model, data, **HARM)
    expected = ttpfl.learn_rates(model, data, check=False, **(HARM | {"rounds": rates.learned["rounds"]}))
    assert torch.equal(rates.values, expected.values)


def test_rates_that_help_are_those_of_the_last_round() -> None:
    model, data = make("mlp"), clients("mlp")
    arguments: dict[str, Any] = {"rounds": 4, "lr": 0.5, "batch_size": 4, "cohort": 2}
    expected = ttpfl.learn_rates(model, data, check=False, **arguments)
    rates = ttpfl.learn_rates(model, data, **arguments)
    assert torch.equal(rates.values, expected.values)
    assert rates.learned["checked"]["round"] == 4
    assert rates.learned["checked"]["adapted_loss"] < rates.learned["checked"]["plain_loss"]


def test_the_check_is_kept_with_the_rates(tmp_path: Path) -> None:
    model = make("mlp")
    rates = ttpfl.learn_rates(model, clients("mlp"), rounds=2, batch_size=4)
    rates.save(tmp_path / "rates.safetensors")
    assert ttpfl.Rates.load(tmp_path / "rates.safetensors", model).learned == rates.learned


@pytest.mark.parametrize("workers", [0, 2])
def test_on_all_cores_the_same(workers: int, tmp_path: Path) -> None:
    """The same round, values and figures as in one process; also after an interruption."""
    model, data = make("cnn18"), clients()
    with pytest.warns(ttpfl.RatesWarning):
        expected = ttpfl.learn_rates(model, data, **HARM)
    learn(model, data, LearnSettings(workers=workers, **HARM | {"rounds": 2}), run_dir=tmp_path)
    with pytest.warns(ttpfl.RatesWarning):
        learned = learn(model, data, LearnSettings(workers=workers, **HARM), run_dir=tmp_path, resume=True)
    assert torch.equal(learned.rates.values, expected.values)
    assert learned.rates.learned["rounds"] == expected.learned["rounds"]
    assert learned.rates.learned["checked"] == pytest.approx(expected.learned["checked"])
    with pytest.warns(ttpfl.RatesWarning):  # all rounds are done: only the check is
        again = learn(model, data, LearnSettings(workers=workers, **HARM), run_dir=tmp_path, resume=True)
    assert torch.equal(again.rates.values, expected.values)
    unchecked = learn(model, data, LearnSettings(workers=workers, check=False, **HARM)).rates
    assert torch.equal(unchecked.values, ttpfl.learn_rates(model, data, check=False, **HARM).values)


def test_with_privacy_nothing_is_looked_at() -> None:
    for privacy in ("central", "local"):
        settings = LearnSettings(rounds=2, batch_size=4, workers=0, privacy=privacy)
        learned = learn(make("mlp"), clients("mlp"), settings)
        assert "checked" not in learned.rates.learned
        assert not any(name.endswith("_loss") for record in learned.history for name in record)


def test_history_before_and_after_adaptation() -> None:
    """Zero rates to begin with: the loss of the first batches is that without adaptation."""
    model, data = make("mlp"), clients("mlp")
    history: list[dict[str, Any]] = []
    ttpfl.learn_rates(model, data, rounds=3, cohort=2, lr=0.5, batch_size=11, progress=history.append)
    assert [record["round"] for record in history] == [0, 1, 2]
    assert [record["clients"] for record in history] == [2, 2, 2]
    for record in history:
        cohort = ttpfl.core.learning.draw_cohort(data, 2, 0, record["round"])
        plain = sum(F.cross_entropy(model.eval()(x), y).item() for x, y in cohort) / 2
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in cohort)
        assert math.isclose(record["plain_loss"], plain, rel_tol=1e-5)
        assert math.isclose(record["plain_accuracy"], right / 22)
    assert math.isclose(history[0]["validation_loss"], history[0]["plain_loss"], rel_tol=1e-5)
    assert history[2]["validation_loss"] < history[2]["plain_loss"]
    settings = LearnSettings(rounds=3, cohort=2, lr=0.5, batch_size=11, workers=0)
    for ours, theirs in zip(history, learn(model, data, settings).history, strict=True):
        assert ours == {name: pytest.approx(theirs[name]) for name in ours}


def test_clients_of_the_last_rounds() -> None:
    names = list("abcdefghij")
    assert recent_clients(names, 10, seed=0, rounds=1) == names
    last = {name for number in (3, 4, 5, 6) for name in ttpfl.core.learning.draw_cohort(names, 2, 0, number)}
    assert recent_clients(names, 2, seed=0, rounds=7) == sorted(last)


def judge_by(losses: dict[float, tuple[float, int | None]]) -> Any:
    def judge(values: Tensor) -> MetricSums:
        loss, right = losses[float(values)]
        return MetricSums(1000, 1000 * loss, right)

    return judge


def candidate(rounds: int) -> Candidate:
    return Candidate(rounds, torch.tensor(float(rounds)))


@pytest.mark.parametrize(
    ("losses", "chosen", "words"),
    [
        ({0: (0.5, 889), 3: (0.4, 900), 9: (0.45, 890)}, 9, None),
        ({0: (0.5, 889), 3: (0.4, 900), 9: (0.6, 890)}, 3, "The rates of round 3 are returned"),
        (
            {0: (0.5, 889), 3: (0.4, 900), 9: (0.4, 760)},
            3,
            "accuracy 76.0%; no adaptation: loss 0.5, accuracy 88.9%",
        ),
        ({0: (0.5, 889), 3: (0.7, 900), 9: (0.6, 890)}, 0, "rates of zero are returned"),
        ({0: (0.5, None), 3: (0.4, None), 9: (math.nan, None)}, 3, "round 3"),
        ({0: (0.5, 889), 3: (0.4, 900), 9: (0.50001, 889)}, 9, None),  # rounding
    ],
)
def test_what_is_chosen(losses: Any, chosen: int, words: str | None) -> None:
    found = verdict(candidate(9), [candidate(3), candidate(0)], judge_by(losses))
    assert found.chosen.rounds == chosen
    assert (found.warning is None) == (words is None)
    assert words is None or words in str(found.warning)


def test_the_best_is_chosen_on_the_same_clients() -> None:
    """Not the first that is no worse than none, nor the one whose own cohort had most to gain."""
    losses = {0: (0.5, 889), 1: (0.49, 890), 3: (0.45, 890), 5: (0.3, 700), 9: (2.0, 300)}
    found = verdict(candidate(9), [candidate(rounds) for rounds in (0, 1, 3, 5)], judge_by(losses))
    assert found.chosen.rounds == 3


def test_a_cohort_with_much_to_gain_does_not_decide(tmp_path: Path) -> None:
    """Round 7 lowered its own cohort's loss most; on the clients of the check another is better."""
    model, data = make("cnn18"), clients()
    settings: dict[str, Any] = {"rounds": 12, "lr": 0.6, "batch_size": 4, "cohort": 2, "seed": 5}
    history: list[dict[str, Any]] = []
    with pytest.warns(ttpfl.RatesWarning, match=r"last round \(12\) are worse"):
        rates = ttpfl.learn_rates(model, data, progress=history.append, **settings)
    excess = [record["validation_loss"] - record["plain_loss"] for record in history]
    kept = [min(span, key=excess.__getitem__) for span in ([1], [2, 3], [4, 5, 6, 7], [8, 9, 10, 11])]
    after = {n: ttpfl.learn_rates(model, data, check=False, **settings | {"rounds": n}) for n in kept}
    asked = [data[place] for place in recent_clients(range(4), 2, 5, 12)]
    losses = {n: loss_of(model, after[n], asked)[0] for n in kept}
    losses[0] = loss_of(model, ttpfl.Rates.zeros(model), asked)[0]
    best = min(losses, key=losses.__getitem__)
    assert best != min(range(12), key=excess.__getitem__)
    assert rates.learned["rounds"] == best
    assert rates.learned["checked"]["clients"] == len(asked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ttpfl.RatesWarning)
        learn(model, data, LearnSettings(workers=0, **settings | {"rounds": 5}), run_dir=tmp_path)
        resumed = learn(model, data, LearnSettings(workers=0, **settings), run_dir=tmp_path, resume=True)
    assert torch.equal(resumed.rates.values, rates.values)


def test_where_nothing_helps_the_least_harm_is_returned() -> None:
    """Rates to begin with may do harm themselves."""
    losses = {0: (0.5, 889), 1: (0.8, 700), 3: (0.7, 800), 9: (2.0, 300)}
    found = verdict(candidate(9), [candidate(1), candidate(3)], judge_by(losses))
    assert found.chosen.rounds == 3
    assert "worse than none as well: do not use them" in str(found.warning)


@pytest.mark.parametrize("lr", [64.0, 200.0])
def test_rates_that_diverged_are_refused(lr: float, caplog: pytest.LogCaptureFixture) -> None:
    """Finite, but so large that nothing is left of the model: they were returned without a word."""
    model, data = make("cnn18"), clients()
    with pytest.raises(ttpfl.RatesError, match=r"'[\w.]+'.*; lower lr \(it is \d+\)") as caught:
        ttpfl.learn_rates(model, data, rounds=6, lr=lr, batch_size=4)
    assert any(note.startswith("client ") for note in caught.value.__notes__)
    with pytest.raises(FederationError) as refused:  # at once if all diverge, else when too few are left
        learn(model, data, LearnSettings(rounds=6, lr=lr, batch_size=4, workers=0))
    assert "RatesError: the rates diverged: '" in caplog.text + str(refused.value)


def test_a_loss_out_of_all_proportion_is_refused() -> None:
    """Nothing moves far, but the last layer's inputs are so large that the loss is."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3, affine=False), torch.nn.Linear(3, 2)).eval()
    with torch.no_grad():
        model[1].weight.mul_(1e7)
    data = [(torch.randn(8, 3), torch.randint(2, (8,)))]
    begin = ttpfl.Rates.zeros(model, only="stats")
    with pytest.raises(ttpfl.RatesError, match=r"the rates diverged.*lower lr"):
        ttpfl.learn_rates(model, data, rounds=3, lr=1.0, batch_size=4, rates=begin)


def test_large_rates_of_tiny_directions_are_fine() -> None:
    """What counts is how far a module moves: an objective in other units has other rates."""
    model, batch = make("mlp"), batches("mlp")[0]

    def in_other_units(logits: Tensor) -> Tensor:
        return 1e-6 * ttpfl.core.direction.entropy(logits)

    begin = ttpfl.Rates.zeros(model, only="params")
    usual = ttpfl.refine_rates(model, begin, [batch], lr=0.5)
    large = ttpfl.refine_rates(model, begin, [batch], lr=0.5e12, objective=in_other_units)
    assert large.values.abs().max() > 1e4
    torch.testing.assert_close(large.values * 1e-6, usual.values, rtol=1e-3, atol=1e-9)


def test_nothing_to_go_down_before_anything_moved() -> None:
    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return (logits - logits.detach()).abs().sqrt().sum()  # whose slope at 0 is infinite

    model = make("mlp")
    with pytest.raises(
        ttpfl.RatesError, match=r"slope of the loss in the rate of '[\w.]+' is not finite before"
    ):
        ttpfl.refine_rates(model, ttpfl.Rates.zeros(model), batches("mlp"), loss=loss)
