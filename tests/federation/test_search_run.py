"""Whole runs of the trust-region search on small networks."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ttpfl
from tests.helpers.small_clients import CLASSES, FEATURES, Site, clients, mlp, pair
from tests.helpers.untouched import untouched
from ttpfl.core.learning import adapted_tally, draw_cohort
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.errors import FederationError, RatesWarning
from ttpfl.federation import Callback, LearnSettings, learn
from ttpfl.federation.clients.rate_work import RatesWork
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.rate_run import Learned

Pair = tuple[Tensor, Tensor]


def trained() -> nn.Module:
    """A network that classifies what is not shifted."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for seed in range(30):
        x, y = pair(64, 1000 + seed)
        optimizer.zero_grad()
        F.cross_entropy(model.train()(x), y).backward()
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model.eval()


def shifted(count: int = 8, size: int = 12) -> dict[str, Pair]:
    """Clients whose inputs are scaled and moved, each in its own way: adaptation helps all of them."""
    data = {}
    for number in range(count):
        x, y = pair(size + number, number)
        generator = torch.Generator().manual_seed(number)
        x = x * (1.5 + torch.rand(FEATURES, generator=generator)) + 2 * torch.randn(1, generator=generator)
        data[f"client-{number}"] = (x, y)
    return data


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.set_num_threads(1)
    return trained()


@pytest.fixture(scope="module")
def whole(model: nn.Module) -> Learned:
    """An undisturbed run to the end."""
    return learn(model, shifted(), settings())


def settings(**options: Any) -> LearnSettings:
    # Few clients with few samples hardly show that anything helps: whatever lowers the loss is returned.
    return LearnSettings(**{"batch_size": 6, "workers": 0, "check": False, **options})


def mean_loss(model: nn.Module, rates: Rates, data: Sequence[Pair]) -> float:
    """Mean loss of the clients, by the evaluation."""
    twin = Twin(model, rates.modules)
    streams = [zip(x.split(6), y.split(6), strict=True) for x, y in data]
    losses = [adapted_tally(twin, rates, stream, rates.mode).mean_loss for stream in streams]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("mode", ["batch", "online"])
def test_the_same_bits_in_any_way(model: nn.Module, mode: Any) -> None:
    data, rounds = shifted(), 25 if mode == "batch" else 3
    with untouched(model):
        one = ttpfl.learn_rates(model, data, rounds, batch_size=6, mode=mode, check=False)
        options = {"mode": mode, "rounds": rounds}
        others = [learn(model, data, settings(**options, workers=workers)) for workers in (0, 2)]
    assert one.values.any()
    assert one.variance == "log"
    assert one.mode == mode
    for other in others:
        assert torch.equal(other.rates.values, one.values)
        assert other.rates.learned["checked"] == one.learned["checked"]
        assert other.rates.learned["optimizer"] == one.learned["optimizer"] == "trust-region"
    assert others[0].history == others[1].history


def test_the_order_of_clients_does_not_matter_much(model: nn.Module) -> None:
    """Sums over clients round differently."""
    data = shifted()
    turned = dict(reversed(data.items()))
    one, other = (ttpfl.learn_rates(model, some, 3, batch_size=6, check=False) for some in (data, turned))
    assert one.learned["checked"]["adapted_loss"] == pytest.approx(
        other.learned["checked"]["adapted_loss"], rel=0.02
    )


@pytest.mark.parametrize("mode", ["batch", "online"])
def test_the_loss_is_lower_and_as_recorded(model: nn.Module, mode: Any) -> None:
    data = shifted()
    rates = ttpfl.learn_rates(model, data, 5, batch_size=6, mode=mode, check=False)
    checked = rates.learned["checked"]
    zeros = rates.with_values(torch.zeros_like(rates.values))
    if mode == "batch":  # one stream per client in online mode
        assert checked["plain_loss"] == pytest.approx(mean_loss(model, zeros, [*data.values()]), rel=1e-5)
        assert checked["adapted_loss"] == pytest.approx(mean_loss(model, rates, [*data.values()]), rel=1e-5)
    assert checked["adapted_loss"] < 0.9 * checked["plain_loss"]
    assert checked["adapted_accuracy"] > checked["plain_accuracy"]
    assert checked["clients"] == 8
    assert checked["samples"] == sum(len(y) for _, y in data.values())
    assert checked["round"] <= checked["last_round"] == rates.learned["rounds"] - 1
    low, high = checked["expected"]["interval"]
    assert low <= checked["expected"]["gain"] <= high
    # New clients of the same kind gain as well.
    fresh = [*shifted(40).values()][8:]
    if mode == "batch":
        assert mean_loss(model, rates, fresh) < mean_loss(model, zeros, fresh)


@pytest.mark.parametrize(("rounds", "workers"), [(1, 0), (2, 2), (3, 0)])
def test_resumed_runs_have_the_same_bits(
    model: nn.Module, whole: Learned, rounds: int, workers: int, tmp_path: Path
) -> None:
    """Whoever is killed has the checkpoint of its last round, as a run with fewer rounds."""
    data = shifted()
    assert len(whole.history) > rounds
    part = learn(model, data, settings(rounds=rounds, workers=workers), run_dir=tmp_path)
    assert len(part.history) == rounds
    assert (
        part.rates.learned["checked"]["stopped"]
        == f"reached the maximum of {rounds} round{'s' * (rounds > 1)}"
    )
    resumed = learn(model, data, settings(workers=workers), run_dir=tmp_path, resume=True)
    again = learn(model, data, settings(), run_dir=tmp_path, resume=True)  # it has ended
    for found in (resumed, again):
        assert torch.equal(found.rates.values, whole.rates.values)
        assert found.history == whole.history
        assert found.rates.learned["checked"] == whole.rates.learned["checked"]
    lines = (tmp_path / "history.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == whole.history
    loaded = Rates.load(tmp_path / "rates.safetensors", model)
    assert torch.equal(loaded.values, whole.rates.values)
    assert loaded.variance == "log"


def test_the_history(whole: Learned) -> None:
    history, checked = whole.history, whole.rates.learned["checked"]
    assert len(history) == whole.rates.learned["rounds"] < 25
    assert history[0]["accepted"]
    assert history[0]["validation_loss"] == history[0]["plain_loss"] == checked["plain_loss"]
    best = checked["plain_loss"]
    for record in history[1:]:
        assert record["plain_loss"] == checked["plain_loss"]
        if record["accepted"]:
            last_accepted, best = record, record["validation_loss"]
    assert best == checked["adapted_loss"] == last_accepted["validation_loss"]
    assert last_accepted["round"] == checked["round"]
    assert [("stopped" in record) for record in history] == [False] * (len(history) - 1) + [True]
    assert history[-1]["stopped"] == checked["stopped"]
    assert checked["stopped"]


@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_no_adaptation(seed: int) -> None:
    """Untrained networks, clients of equal size that have nothing in common."""
    torch.manual_seed(seed)
    data = [(torch.randn(8, FEATURES), torch.randint(CLASSES, (8,))) for _ in range(3 + seed)]
    checked = ttpfl.learn_rates(mlp(seed), data, batch_size=4, rounds=6).learned["checked"]
    assert checked["adapted_loss"] <= checked["plain_loss"] * (1 + 1e-9)


def test_never_worse_than_no_adaptation_with_clients_of_different_size() -> None:
    """One client has most of the samples and wants something else."""
    torch.manual_seed(2)  # of 25 seeds the one where it matters
    data = [
        (
            torch.randn(size, FEATURES) + 3 * torch.randn(FEATURES) * (size > 10),
            torch.randint(CLASSES, (size,)),
        )
        for size in (4, 4, 4, 4, 4, 60)
    ]
    checked = ttpfl.learn_rates(mlp(2), data, batch_size=4, rounds=5).learned["checked"]
    assert checked["adapted_loss"] <= checked["plain_loss"] * (1 + 1e-9)


class Watch(Callback):
    """Keeps the rates that were sent in each round."""

    def __init__(self) -> None:
        self.vectors: list[Tensor] = []
        self.memories: list[dict[str, Tensor]] = []

    def on_round(self, state: RunState, record: Record) -> None:
        self.vectors.append(state.vector.clone())
        self.memories.append(dict(state.memory))


def test_a_cohort_is_the_same_in_every_round(model: nn.Module) -> None:
    watch = Watch()
    learned = learn(model, shifted(), settings(cohort=4, seed=3, rounds=4), callbacks=[watch])
    assert len(learned.history) > 2
    chosen = draw_cohort(range(8), 4, seed=3, number=0)
    for memory in watch.memories:
        assert memory["best.clients"].tolist() == memory["plain.clients"].tolist() == chosen
    assert all(record["clients"] == 4 for record in learned.history)
    data = list(shifted().values())
    alone = ttpfl.learn_rates(
        model, [data[number] for number in chosen], 4, batch_size=6, seed=3, check=False
    )
    assert torch.equal(alone.values, learned.rates.values)


@pytest.mark.parametrize("average", ["mean", "median", "trimmed", "krum"])
def test_each_average(model: nn.Module, average: str) -> None:
    options = {"average": average, "trim": 0.2, "rounds": 4}
    learned = learn(model, shifted(), settings(**options))
    checked = learned.rates.learned["checked"]
    assert checked["adapted_loss"] < checked["plain_loss"]
    assert learned.rates.learned["average"] == average


class Sick(Site):
    """Fails in some rounds."""

    def __init__(self, name: str, data: Any, notes: Path, rounds: set[int]) -> None:
        super().__init__(name, data, notes)
        self.rounds, self.round = rounds, 0

    def validation(self) -> Any:
        self.round += 1
        if self.round - 1 in self.rounds:
            raise ConnectionError("away")
        return super().validation()


def sick(notes: Path, rounds: set[int], which: set[int], count: int = 8) -> list[Any]:
    return [
        Sick(name, data, notes, rounds if number in which else set())
        for number, (name, data) in enumerate(shifted(count).items())
    ]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_client_that_fails_once_is_left_out(model: nn.Module, number: int, tmp_path: Path) -> None:
    watch = Watch()
    learned = learn(model, sick(tmp_path, {number}, {2}), settings(rounds=3), callbacks=[watch])
    assert [record["failed"] for record in learned.history[: number + 1]] == [[]] * number + [["client-2"]]
    assert not any(record["abandoned"] for record in learned.history)
    memory = watch.memories[number]
    if learned.history[number]["accepted"]:
        assert 2 not in memory["best.clients"].tolist()
        assert len(memory["best.clients"]) == 7
    checked = learned.rates.learned["checked"]
    assert checked["adapted_loss"] < checked["plain_loss"]


def test_a_client_that_always_fails_is_as_if_it_were_not_there(model: nn.Module, tmp_path: Path) -> None:
    everyone = sick(tmp_path, set(range(99)), {7})
    learned = learn(model, everyone, settings(rounds=4))
    without = ttpfl.learn_rates(model, dict(list(shifted().items())[:7]), 4, batch_size=6, check=False)
    assert torch.equal(learned.rates.values, without.values)
    with pytest.raises(ConnectionError, match="away"):
        ttpfl.learn_rates(model, sick(tmp_path, {1}, {7}), batch_size=6)


def test_a_round_with_too_few_answers_is_abandoned(model: nn.Module, whole: Learned, tmp_path: Path) -> None:
    """And repeated: the same rates are sent again, and the result is that of a run without the failure."""
    watch = Watch()
    learned = learn(model, sick(tmp_path, {1}, set(range(5))), settings(), callbacks=[watch])
    assert [record["abandoned"] for record in learned.history][:3] == [False, True, False]
    assert torch.equal(watch.vectors[1], watch.vectors[0])
    assert torch.equal(learned.rates.values, whole.rates.values)


def test_an_abandoned_round_accepts_nothing(model: nn.Module, tmp_path: Path) -> None:
    learned = learn(model, sick(tmp_path, {1}, set(range(5))), settings(rounds=2))
    assert learned.history[1]["abandoned"]
    assert not learned.history[1].get("accepted")


def test_a_later_round_without_any_answer_is_abandoned(
    model: nn.Module, whole: Learned, tmp_path: Path
) -> None:
    learned = learn(model, sick(tmp_path, {1}, set(range(8))), settings())
    assert [record["abandoned"] for record in learned.history][:3] == [False, True, False]
    assert torch.equal(learned.rates.values, whole.rates.values)


def limit_rates(monkeypatch: pytest.MonkeyPatch, limit: float) -> None:
    """All clients refuse larger rates."""
    slope = RatesWork._answered

    def limited(self: RatesWork, client: int, data: Any, rates: Rates, out: Tensor) -> Any:
        if rates.values.abs().max() > limit:
            raise PermissionError("a rate is above this site's limit")
        return slope(self, client, data, rates, out)

    monkeypatch.setattr(RatesWork, "_answered", limited)


@pytest.mark.parametrize("share", [0.3, 0.03])
def test_rates_that_all_clients_refuse(
    model: nn.Module, whole: Learned, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Shorter steps follow, so that the run neither ends nor returns rates of zero."""
    limit = share * float(whole.rates.values.abs().max())
    limit_rates(monkeypatch, limit)
    learned = learn(model, shifted(), settings())
    assert any(record["abandoned"] for record in learned.history)
    checked = learned.rates.learned["checked"]
    assert checked["adapted_loss"] < checked["plain_loss"]
    assert 0 < learned.rates.values.abs().max() <= limit


@pytest.mark.parametrize("prior", [False, True])
def test_clients_may_refuse_much_shorter_steps_as_well(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch, prior: bool, tmp_path: Path
) -> None:
    """Three refusals cannot be told from an outage, so they end the run. Resumed, it tries shorter steps."""
    data, options = (skewed(), {"prior": True, "batch_size": 8}) if prior else (shifted(), {})
    watch = Watch()
    learn(model, data, settings(rounds=2 + prior, **options), callbacks=[watch])
    first = float(watch.vectors[prior][: -CLASSES if prior else None].abs().max())
    limit = 1e-3 * first
    limit_rates(monkeypatch, limit)
    with pytest.raises(FederationError, match="3 rounds in a row were abandoned"):
        learn(model, data, settings(**options), run_dir=tmp_path)
    learned = learn(model, data, settings(**options), run_dir=tmp_path, resume=True)
    checked = learned.rates.learned["checked"]
    assert checked["adapted_loss"] < checked["plain_loss"]
    assert 0 < learned.rates.values.abs().max() <= limit


def test_a_long_outage_does_not_shorten_steps(model: nn.Module, whole: Learned, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    outage = sick(tmp_path / "notes", set(range(2, 9)), set(range(8)))
    watch = Watch()
    for attempt in range(5):
        with pytest.raises(FederationError, match="3 rounds in a row were abandoned"):
            learn(model, outage, settings(), run_dir=tmp_path / "run", resume=attempt > 0, callbacks=[watch])
    assert all(torch.equal(watch.memories[5][name], watch.memories[-1][name]) for name in watch.memories[5])
    learned = learn(model, outage, settings(), run_dir=tmp_path / "run", resume=True)
    gains = [one.rates.learned["checked"] for one in (whole, learned)]
    undisturbed, resumed = (checked["plain_loss"] - checked["adapted_loss"] for checked in gains)
    assert resumed > 0.95 * undisturbed


@pytest.mark.parametrize("first", [1, 2, 3])
def test_an_outage_that_ends_the_run(model: nn.Module, whole: Learned, tmp_path: Path, first: int) -> None:
    """The run can be resumed when the clients are back, and gets about as far."""
    (tmp_path / "notes").mkdir()
    outage = sick(tmp_path / "notes", {first, first + 1, first + 2}, set(range(8)))
    with pytest.raises(FederationError, match="3 rounds in a row were abandoned"):
        learn(model, outage, settings(), run_dir=tmp_path / "run")
    learned = learn(model, outage, settings(), run_dir=tmp_path / "run", resume=True)
    gains = [one.rates.learned["checked"] for one in (whole, learned)]
    undisturbed, resumed = (checked["plain_loss"] - checked["adapted_loss"] for checked in gains)
    assert resumed > 0.95 * undisturbed
    assert "even very short steps" not in gains[1]["stopped"]


def test_a_first_round_with_too_few_answers(model: nn.Module, whole: Learned, tmp_path: Path) -> None:
    learned = learn(model, sick(tmp_path, {0}, set(range(5))), settings())
    assert learned.history[0]["abandoned"]
    assert torch.equal(learned.rates.values, whole.rates.values)


def test_a_run_in_which_no_round_succeeded_says_so(model: nn.Module, tmp_path: Path) -> None:
    """By an error, or a warning (an error in tests) and rates of zero; not by an internal error."""
    with pytest.raises((FederationError, RatesWarning)):
        learn(model, sick(tmp_path, {0}, set(range(5))), settings(rounds=1))


def test_one_client(model: nn.Module) -> None:
    data = dict(list(shifted().items())[:1])
    ways: list[Callable[[], Rates]] = [
        lambda: ttpfl.learn_rates(model, data, batch_size=6),
        lambda: learn(model, data, settings()).rates,
    ]
    for go in ways:
        with pytest.warns(RatesWarning, match="rates of zero are returned: a single client does not show"):
            rates = go()
        assert not rates.values.any()
        assert rates.learned["rounds"] == 1
        checked = rates.learned["checked"]
        assert checked["adapted_loss"] == checked["plain_loss"]
        assert "a single client" in checked["stopped"]
        assert checked["expected"] == {}


def test_a_single_answer_decides_nothing(model: nn.Module, tmp_path: Path) -> None:
    """Two clients, of which one fails once: the step is tried again when it is back."""
    learned = learn(model, sick(tmp_path, {1}, {1}, count=2), settings())
    assert [record["abandoned"] for record in learned.history[:3]] == [False, True, False]
    assert learned.rates.values.any()
    healthy = learn(model, shifted(2), settings())
    assert torch.equal(learned.rates.values, healthy.rates.values)


@pytest.mark.filterwarnings("ignore::ttpfl.errors.RatesWarning")
def test_given_rates_are_tried_first(model: nn.Module, whole: Learned) -> None:
    data, found = shifted(), whole.rates
    watch = Watch()
    again = learn(model, data, settings(rounds=3), rates=found, callbacks=[watch])
    assert torch.equal(watch.vectors[0], found.values)
    assert again.history[1]["accepted"]
    checked = again.rates.learned["checked"]
    assert checked["adapted_loss"] <= found.learned["checked"]["adapted_loss"] * (1 + 1e-6)
    bad = found.with_values(-3 * found.values)
    other = learn(model, data, settings(rounds=4), rates=bad)
    assert not other.history[1]["accepted"]
    assert other.rates.learned["checked"]["adapted_loss"] < checked["plain_loss"]


@pytest.mark.parametrize(("granularity", "only"), [("layer", None), ("kind", "params"), ("tensor", "stats")])
def test_grouped_rates(model: nn.Module, granularity: Any, only: Any) -> None:
    """Given rates also say which modules move."""
    begin = Rates.zeros(model, granularity, only)
    rates = ttpfl.learn_rates(model, shifted(), batch_size=6, rates=begin, rounds=3, check=False)
    variance = "linear" if only == "params" else "log"  # without statistics, there is none
    assert (rates.granularity, rates.only, rates.variance) == (granularity, only, variance)
    checked = rates.learned["checked"]
    assert checked["adapted_loss"] < checked["plain_loss"]


@pytest.mark.filterwarnings("ignore::ttpfl.errors.RatesWarning")
def test_resuming_the_run_of_another_optimizer_is_refused(model: nn.Module, tmp_path: Path) -> None:
    data = clients()
    learn(model, data, settings(rounds=1, optimizer="sgd"), run_dir=tmp_path / "sgd")
    with pytest.raises(FederationError, match="optimizer was 'sgd', now it is 'trust-region'"):
        learn(model, data, settings(), run_dir=tmp_path / "sgd", resume=True)
    learn(model, data, settings(rounds=1), run_dir=tmp_path / "search")
    with pytest.raises(FederationError, match="optimizer was 'trust-region', now it is 'sgd'"):
        learn(model, data, settings(optimizer="sgd"), run_dir=tmp_path / "search", resume=True)


def test_given_zeros_move_variances_like_the_default(
    model: nn.Module, whole: Learned, tmp_path: Path
) -> None:
    """Zeros mean the same in both domains, so they need not say which; they can also resume such a run."""
    data = shifted()
    learn(model, data, settings(rounds=2), run_dir=tmp_path)
    resumed = learn(model, data, settings(), run_dir=tmp_path, resume=True, rates=Rates.zeros(model))
    assert resumed.rates.variance == "log"
    assert torch.equal(resumed.rates.values, whole.rates.values)


@pytest.mark.filterwarnings("ignore::ttpfl.errors.RatesWarning")
def test_sgd_by_name_is_sgd_by_its_learning_rate(model: nn.Module) -> None:
    data = clients()
    options: dict[str, Any] = {"rounds": 3, "cohort": 3}

    def bits(learned: Learned) -> tuple[list[float], list[Record]]:
        return learned.rates.values.tolist(), learned.history

    named = learn(model, data, settings(optimizer="sgd", **options))
    assert bits(named) == bits(learn(model, data, settings(lr=0.1, **options)))
    assert bits(named) == bits(learn(model, data, settings(optimizer="sgd", lr=0.1, **options)))
    assert named.rates.variance == "linear"
    one = ttpfl.learn_rates(model, data, batch_size=6, optimizer="sgd", **options)
    two = ttpfl.learn_rates(model, data, batch_size=6, lr=0.1, **options)
    assert torch.equal(one.values, two.values)
    assert torch.equal(one.values, named.rates.values)
    assert one.learned == two.learned
    assert one.values.any()


def test_wrong_combinations_in_learn_rates(model: nn.Module) -> None:
    with pytest.raises(ttpfl.RatesError, match=r"^lr=0.1 has no effect with optimizer='trust-region'"):
        ttpfl.learn_rates(model, clients(), optimizer="trust-region", lr=0.1)


def test_rates_in_double_precision(model: nn.Module) -> None:
    """The engine uses the memory of a result again: the server must have copied it."""
    single, double = Rates.zeros(model), Rates.zeros(model)
    double.values = double.values.double()
    one, two = (
        ttpfl.learn_rates(model, shifted(), batch_size=6, rates=r, check=False) for r in (single, double)
    )
    losses = [rates.learned["checked"]["adapted_loss"] for rates in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("factor", [1e-7, 1e7])
def test_the_unit_of_the_loss_does_not_matter(model: nn.Module, factor: float) -> None:
    def scaled(logits: Tensor, labels: Tensor) -> Tensor:
        return factor * F.cross_entropy(logits, labels)

    one = ttpfl.learn_rates(model, shifted(), batch_size=6, rounds=6, check=False)
    two = ttpfl.learn_rates(model, shifted(), batch_size=6, rounds=6, loss=scaled, check=False)
    torch.testing.assert_close(one.values, two.values, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("scale", [0.0, 1e3])
def test_clients_with_extreme_inputs(model: nn.Module, scale: float) -> None:
    """Constant inputs, and inputs far away: the search ends with finite rates that do no harm."""
    data = [(scale * x, y) for x, y in shifted(4).values()]
    rates = ttpfl.learn_rates(model, data, batch_size=6, rounds=4, check=False)
    checked = rates.learned["checked"]
    assert rates.values.isfinite().all()
    assert math.isfinite(checked["adapted_loss"])
    assert checked["adapted_loss"] <= checked["plain_loss"] * (1 + 1e-9)


def skewed(count: int = 8, size: int = 16) -> dict[str, Pair]:
    """Clients that have mostly one class."""
    data = {}
    for number in range(count):
        x, y = pair(8 * size, number)
        often = torch.nonzero(y == number % CLASSES)[: size - 4, 0]
        rare = torch.nonzero(y != number % CLASSES)[:4, 0]
        order = torch.randperm(size, generator=torch.Generator().manual_seed(number))
        chosen = torch.cat([often, rare])[order]
        data[f"client-{number}"] = (x[chosen], y[chosen])
    return data


def test_the_label_prior_is_learned_in_the_same_way_everywhere(model: nn.Module) -> None:
    data = skewed()
    with untouched(model):
        one = ttpfl.learn_rates(model, data, batch_size=8, prior=True, check=False)
        others = [learn(model, data, settings(batch_size=8, workers=n, prior=True)) for n in (0, 2)]
    assert one.names[-1] == "label_prior"
    assert float(one.values[-1]) > 0.3
    for other in others:
        assert torch.equal(one.values, other.rates.values)
        assert one.prior == other.rates.prior


def counts_of(rows: list[Tensor]) -> Tensor:
    """Mean prediction, times the variance within clients over that between them."""
    means = torch.stack([row.mean(0) for row in rows])
    within = sum(float(row.var(0).sum()) for row in rows) / len(rows)
    between = float(means.var(0).sum()) - within / len(rows[0])
    return means.mean(0) * max(1.0, within / between)


def test_the_label_prior_compares_with_adapted_predictions_of_source_clients(model: nn.Module) -> None:
    data, options = skewed(), {"batch_size": 8, "prior": True, "check": False}
    with torch.no_grad():
        plain = counts_of([model(x).softmax(1) for x, _ in data.values()])
    first = learn(model, data, settings(rounds=2, **options)).rates  # nothing but the plain model so far
    torch.testing.assert_close(torch.tensor(first.prior), plain, rtol=1e-4, atol=1e-6)
    # The first trial is compared with the plain predictions, too, the second one with those of the first.
    second = learn(model, data, settings(rounds=3, **options)).rates
    torch.testing.assert_close(torch.tensor(second.prior), plain, rtol=1e-4, atol=1e-6)
    third = learn(model, data, settings(rounds=4, **options))
    assert [record["accepted"] for record in third.history[2:]] == [True, True]
    values = second.values.clone()
    values[-1] = 0  # predictions without the prior itself
    personal = ttpfl.Personalizer(model, second.with_values(values))
    adapted = counts_of(
        [torch.cat([personal(part) for part in x.split(8)]).softmax(1) for x, _ in data.values()]
    )
    torch.testing.assert_close(torch.tensor(third.rates.prior), adapted, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(adapted, plain, rtol=1e-2)


def test_a_client_that_overflows_is_not_left_out_with_a_label_prior(model: nn.Module) -> None:
    """Else the others would accept what harms it."""
    data = skewed()
    x, y = next(iter(data.values()))
    learned = learn(model, {**data, "large": (1e19 * x, y)}, settings(batch_size=8, prior=True, check=False))
    assert not any(record.get("failed") for record in learned.history)
    assert not learned.rates.values.any()


def test_the_label_prior_helps_new_clients_under_label_shift(model: nn.Module) -> None:
    every = skewed(40)
    data, fresh = dict(list(every.items())[:20]), [*every.values()][20:]
    plain, rates = (
        ttpfl.learn_rates(model, data, batch_size=8, prior=prior, check=False) for prior in (False, True)
    )
    assert mean_loss(model, rates, fresh) < mean_loss(model, plain, fresh)
    checked = rates.learned["checked"]
    assert checked["adapted_loss"] < plain.learned["checked"]["adapted_loss"]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_resuming_with_the_label_prior(model: nn.Module, rounds: int, tmp_path: Path) -> None:
    """Also after the round that only gathers predictions."""
    data, options = skewed(), {"batch_size": 8, "prior": True}
    whole = learn(model, data, settings(**options))
    part = learn(model, data, settings(rounds=rounds, **options), run_dir=tmp_path)
    assert part.rates.values.any() == (rounds > 2)
    resumed = learn(model, data, settings(**options), run_dir=tmp_path, resume=True)
    assert torch.equal(resumed.rates.values, whole.rates.values)
    assert resumed.rates.prior == whole.rates.prior
    assert resumed.history == whole.history


def test_labels_that_are_no_classes_have_no_prior() -> None:
    data = {name: (x, x[:, :2] * 2) for name, (x, _) in shifted().items()}
    rates = ttpfl.learn_rates(
        nn.Linear(FEATURES, 2),
        data,
        rounds=3,
        prior=True,
        loss=F.mse_loss,
        objective=lambda logits: logits.square().mean(),
    )
    assert rates.prior == ()


def agreeing(strength: float, count: int = 12, samples: int = 120) -> list[Pair]:
    """Clients whose features are shifted, and whose labels follow the features before the shift."""
    generator = torch.Generator().manual_seed(1)
    own = [torch.randn(samples, FEATURES, generator=generator) for _ in range(count)]
    shifts = strength * torch.randn(count, FEATURES, generator=generator)
    return [(x + shift, x[:, :CLASSES].argmax(1)) for x, shift in zip(own, shifts, strict=True)]


def exact() -> nn.Module:
    """A classifier that is right if features are not shifted; its statistics can follow a shift."""
    linear = nn.Linear(FEATURES, CLASSES, bias=False)
    with torch.no_grad():
        linear.weight.copy_(3 * torch.eye(CLASSES, FEATURES))
    return nn.Sequential(nn.BatchNorm1d(FEATURES), linear).eval()


def test_rates_are_returned_if_they_are_shown_to_help() -> None:
    rates = ttpfl.learn_rates(exact(), agreeing(1.0), batch_size=20)
    checked = rates.learned["checked"]
    assert checked["adapted_accuracy"] > checked["plain_accuracy"] + 0.1
    assert checked["expected"]["interval"][0] > 0
    assert rates.values.any()


def test_rates_of_zero_are_returned_and_logged_if_none_are_shown_to_help(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is no shift, so that the accuracy of 100 % cannot rise, but predictions can become surer."""
    model, data = exact(), agreeing(0.0)
    rates = ttpfl.learn_rates(model, data, batch_size=20)
    assert not rates.values.any()
    assert "rates of zero are returned" in caplog.text
    checked = rates.learned["checked"]
    assert "are not shown to help new clients" in checked["stopped"]
    assert checked["adapted_loss"] == checked["plain_loss"]
    assert checked["expected"]["gain"] == 0
    unchecked = ttpfl.learn_rates(model, data, batch_size=20, check=False)
    assert unchecked.learned["checked"]["adapted_loss"] < checked["plain_loss"]
