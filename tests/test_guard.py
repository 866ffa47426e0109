"""The guard: harm that it must stop, gain that it must keep, and accidents that must not matter."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from ttpfl.core.direction import entropy
from ttpfl.core.gain import (
    COEFFICIENTS,
    FIGURES,
    GAIN,
    RANGE,
    RIDGE,
    RIGHT,
    SHRINKAGE,
    Coefficients,
    Past,
    Sums,
    effects,
    for_range,
)
from ttpfl.core.guard import Estimator, Guard, Limits
from ttpfl.core.influence import WINDOW
from ttpfl.core.lessons import LESSONS, studied
from ttpfl.core.twin import Twin
from ttpfl.core.watch import ALARM, COUNTS, FARTHEST, LARGEST_LOSS, MOST, Caution, Watch
from ttpfl.errors import BatchError, RatesError, RatesFileError
from ttpfl.federation import LearnSettings, learn
from ttpfl.federation.clients.guard_work import _exam
from ttpfl.federation.common.guard_vector import EXAMINE, TEACH, Exam, GuardVector, Taught
from ttpfl.federation.server.guard_fit import false_alarm_rate

CLASSES = 4
Client = tuple[Tensor, Tensor]


def shifted_clients(count: int, samples: int, seed: int) -> list[Client]:
    """Gaussian classes; every client's sensor adds an offset of its own."""
    random = torch.Generator().manual_seed(seed)
    clients = []
    for _ in range(count):
        offset = torch.randn(CLASSES, generator=random)
        labels = torch.randint(CLASSES, (samples,), generator=random)
        noise = torch.randn(samples, CLASSES, generator=random)
        clients.append((2.0 * torch.eye(CLASSES)[labels] + noise + offset, labels))
    return clients


def network() -> nn.Module:
    """The best linear classifier of the classes without offsets."""
    model = nn.Sequential(nn.BatchNorm1d(CLASSES, affine=False), nn.Linear(CLASSES, CLASSES))
    model[0].running_mean.fill_(0.5)
    with torch.no_grad():
        model[1].weight.copy_(2.0 * torch.eye(CLASSES))
        model[1].bias.zero_()
    return model.eval()


SOURCE, NEW = shifted_clients(24, 100, seed=0), shifted_clients(12, 200, seed=1)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return network()


@pytest.fixture(scope="module")
def rates(model: nn.Module) -> ttpfl.Rates:
    return ttpfl.learn_rates(model, SOURCE, mode="online", guard=True)


def accuracy(personal: nn.Module, clients: list[Client] = NEW) -> float:
    right = 0
    for x, y in clients:
        if isinstance(personal, ttpfl.Personalizer):
            personal.reset()
        right += sum(
            int((personal(a).argmax(1) == b).sum()) for a, b in zip(x.split(20), y.split(20), strict=True)
        )
    return right / sum(len(y) for _, y in clients)


def guarded(model: nn.Module, rates: ttpfl.Rates, **more: object) -> ttpfl.Personalizer:
    return ttpfl.Personalizer(model, rates, "online", **more)  # type: ignore[arg-type]


def with_other(rates: ttpfl.Rates, values: Tensor) -> ttpfl.Rates:
    """Other rates with the same guard, which does not know that it was learned for others."""
    assert rates.guard is not None
    return replace(rates.with_values(values), guard=replace(rates.guard, values=""))


def test_gain_is_kept_where_rates_fit(model: nn.Module, rates: ttpfl.Rates) -> None:
    plain, adapted = accuracy(model), accuracy(guarded(model, rates, guard=False))
    assert adapted > plain + 0.05
    assert accuracy(guarded(model, rates)) >= plain + 0.95 * (adapted - plain)


@pytest.mark.parametrize("factor", [-1.0, -3.0])
def test_harm_is_stopped_where_rates_are_flipped(model: nn.Module, rates: ttpfl.Rates, factor: float) -> None:
    flipped = with_other(rates, factor * rates.values)
    plain = accuracy(model)
    assert accuracy(guarded(model, flipped, guard=False)) < plain - 0.1
    assert accuracy(guarded(model, flipped)) >= plain - 0.01


def test_false_alarms_are_as_rare_as_stated(model: nn.Module, rates: ttpfl.Rates) -> None:
    assert rates.guard is not None
    assert rates.guard.estimator is not None
    alarms = 0
    clients = shifted_clients(60, 100, seed=2)
    for client in clients:
        personal = guarded(model, rates)
        gains = accuracy(guarded(model, rates, guard=False), [client]) >= accuracy(model, [client])
        accuracy(personal, [client])
        evidence = personal.health.evidence
        assert evidence is not None
        alarms += gains and evidence.alarms > 0
    # Three standard deviations above the stated rate.
    stated = rates.guard.estimator.false_alarms
    assert alarms / len(clients) <= stated + 3 * (stated / len(clients)) ** 0.5


def test_estimated_accuracy_is_near_the_true_one(model: nn.Module, rates: ttpfl.Rates) -> None:
    inside = 0
    for client in NEW:
        personal = guarded(model, rates)
        accuracy(personal, [client])
        evidence = personal.health.evidence
        assert evidence is not None
        assert evidence.plain_accuracy is not None
        assert evidence.adapted_accuracy is not None
        adapted = accuracy(guarded(model, rates, guard=False), [client])
        inside += evidence.adapted_accuracy.low <= adapted <= evidence.adapted_accuracy.high
        plain = accuracy(model, [client])
        inside += evidence.plain_accuracy.low <= plain <= evidence.plain_accuracy.high
    assert inside >= 0.85 * 2 * len(NEW)


def test_alarm_is_reported_once_and_answers_are_plain(
    model: nn.Module, rates: ttpfl.Rates, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[ttpfl.Health] = []
    flipped = with_other(rates, -rates.values)
    personal = guarded(model, flipped, on_alarm=heard.append)
    for x in NEW[2][0].split(20):
        logits = personal(x)
    (health,) = heard
    assert health.evidence is not None
    assert not health.evidence.adapting
    assert "adaptation stopped" in caplog.text
    torch.testing.assert_close(logits, model(x))
    torch.testing.assert_close(personal.predict(x), model(x))


def test_guard_travels_with_the_rates(model: nn.Module, rates: ttpfl.Rates, tmp_path: Path) -> None:
    rates.save(tmp_path / "rates.safetensors")
    loaded = ttpfl.Rates.load(tmp_path / "rates.safetensors", model=model)
    assert loaded.guard == rates.guard
    assert rates.guard is not None
    numbers = json.dumps(rates.guard.as_json())
    assert len(numbers) < 5000  # a few hundred numbers at most


def test_evidence_travels_with_the_state(model: nn.Module, rates: ttpfl.Rates) -> None:
    flipped, (x, _) = with_other(rates, -rates.values), NEW[2]
    first, second = guarded(model, flipped), guarded(model, flipped)
    for batch in x[:100].split(20):
        first(batch)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x[100:120]), second(x[100:120]))
    assert first.health.evidence == second.health.evidence
    assert second.health.evidence is not None
    assert second.health.evidence.alarms == 1
    broken = {**first.state_dict(), "evidence": torch.full((20,), torch.nan)}
    with pytest.raises(RatesError, match="evidence"):
        second.load_state_dict(broken)


def test_rates_without_a_guard_work_as_before(model: nn.Module, rates: ttpfl.Rates) -> None:
    old, x = replace(rates, guard=None), NEW[0][0][:20]
    assert torch.equal(guarded(model, old)(x), guarded(model, rates, guard=False)(x))
    assert guarded(model, old).health.evidence is None


def test_rates_that_the_guard_was_not_learned_for_are_refused(
    model: nn.Module, rates: ttpfl.Rates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = rates.with_values(1.1 * rates.values)
    changed.save(tmp_path / "rates.safetensors")
    for one in (changed, ttpfl.Rates.load(tmp_path / "rates.safetensors", model=model)):
        caplog.clear()
        personal, x = guarded(model, one), NEW[0][0][:20]
        assert "the rates were changed after their guard was learned" in caplog.text
        torch.testing.assert_close(personal(x), model(x))
        evidence = personal.health.evidence
        assert evidence is not None
        assert (evidence.adapting, evidence.alarm, evidence.alarms) == (False, True, 1)
        assert evidence.plain_batches == 1
    assert not torch.equal(guarded(model, changed, guard=False)(x), model(x))
    caplog.clear()
    guarded(model, rates.with_values(rates.values.clone()))
    assert not caplog.text


def test_batches_that_overflow_raise_an_alarm(model: nn.Module, rates: ttpfl.Rates) -> None:
    assert rates.guard is not None
    huge = rates.with_values(torch.full_like(rates.values, 3e38))
    huge = replace(huge, guard=replace(rates.guard, values=""))
    alarms = list[int]()
    personal = ttpfl.Personalizer(
        model, huge, mode="online", on_alarm=lambda health: alarms.append(health.fallbacks)
    )
    for x in NEW[0][0][: 20 * (ALARM + 1)].split(20):
        torch.testing.assert_close(personal(x), model(x))
    evidence = personal.health.evidence
    assert evidence is not None
    assert (evidence.adapting, evidence.alarm, evidence.plain_batches) == (False, True, ALARM + 1)
    assert alarms == [ALARM]


def test_rates_that_mean_something_else_have_no_guard(rates: ttpfl.Rates) -> None:
    assert rates.guard is not None
    assert rates.in_log_domain().guard is None
    assert rates.with_prior([1.0] * CLASSES).guard is None
    assert ttpfl.average_rates([rates, rates.with_values(2 * rates.values)]).guard is None


def test_a_loaded_state_does_not_remember_the_sizes_of_other_samples(
    model: nn.Module, rates: ttpfl.Rates
) -> None:
    personal, x = guarded(model, rates), NEW[0][0]
    state = personal.state_dict()
    for sample in (100 * x[:WINDOW]).split(1):
        personal(sample)
    personal.load_state_dict(state)
    for sample in x[:5].split(1):
        personal(sample)
    assert personal.health.left_out == 0
    assert personal.health.batches == 5


def test_evidence_of_another_model_is_refused(model: nn.Module, rates: ttpfl.Rates) -> None:
    personal, x = guarded(model, rates), NEW[0][0][:20]
    personal(x)
    state = personal.state_dict()
    negative = state["evidence"].clone()
    negative[COUNTS] *= -1
    with pytest.raises(RatesError, match="of -20 samples"):
        personal.load_state_dict({**state, "evidence": negative})
    personal.load_state_dict({**state, "evidence": torch.cat([state["evidence"], torch.zeros(2)])})
    with pytest.raises(RatesError, match=f"5 classes, not {CLASSES}"):
        personal(x)


def test_guard_does_not_depend_on_workers(model: nn.Module, rates: ttpfl.Rates) -> None:
    settings = LearnSettings(mode="online", workers=2, rounds=25, guard=True)
    assert learn(model, SOURCE, settings).rates.guard == rates.guard


@pytest.mark.parametrize("settings", [{"privacy": "local"}, {"average": "median"}])
def test_guard_is_refused_where_sums_must_not_be_sent(settings: dict[str, str]) -> None:
    with pytest.raises(ttpfl.FederationError, match="guard"):
        LearnSettings(guard=True, **settings)  # type: ignore[arg-type]
    assert not LearnSettings(**settings).guard  # type: ignore[arg-type]


def test_few_clients_learn_no_guard(model: nn.Module) -> None:
    assert ttpfl.learn_rates(model, SOURCE[:3], rounds=2, guard=True).guard is None
    assert ttpfl.learn_rates(model, SOURCE[:6], rounds=2).guard is None


@pytest.mark.parametrize(
    "change",
    [
        *({"spread": -1.0}, {"spread": float("nan")}, {"norms": {"1.weight": "much"}}),
        *({"batch_size": None}, {"batch_size": 0}, {"batch_size": True}, {"other": 1.0}),
    ],
)
def test_invalid_guard_is_refused(rates: ttpfl.Rates, change: dict[str, object]) -> None:
    assert rates.guard is not None
    card = rates.guard.as_json()
    card["limits"] |= change
    with pytest.raises(RatesFileError, match="guard"):
        Guard.from_json(card)


def test_guard_of_another_version_is_refused(rates: ttpfl.Rates) -> None:
    assert rates.guard is not None
    card = rates.guard.as_json()
    card["estimator"] |= {"numbers": (*card["estimator"]["numbers"], 0.0)}
    with pytest.raises(RatesFileError, match="learn the rates again"):
        Guard.from_json(card)
    del card["estimator"]["numbers"]
    with pytest.raises(RatesFileError, match="learn the rates again"):
        Guard.from_json(card)


def test_coefficients_as_numbers() -> None:
    half = torch.rand(FIGURES, FIGURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = Coefficients(torch.arange(21.0).double(), torch.rand(4).double(), half[0], half + half.T)
    assert all(torch.equal(*pair) for pair in zip(Coefficients.of(given.numbers), given, strict=True))


def limited(model: nn.Module, rates: ttpfl.Rates) -> ttpfl.Personalizer:
    assert rates.guard is not None
    return guarded(model, replace(rates, guard=Guard(rates.guard.limits)))


@pytest.mark.parametrize("factor", [30.0, 1000.0, 1e30, 0.0])
def test_an_outlier_is_answered_but_not_learned_from(
    model: nn.Module, rates: ttpfl.Rates, factor: float
) -> None:
    x = NEW[0][0][:20]
    accident = x.clone()
    accident[5] *= factor
    with_it, without_it = limited(model, rates), limited(model, rates)
    logits = with_it(accident)
    without_it(torch.cat([x[:5], x[6:]]))
    assert logits.shape == (20, CLASSES)
    assert bool(torch.isfinite(logits).all())
    assert with_it.health.left_out == 1
    for name, tensor in without_it.state_dict().items():
        assert torch.equal(tensor, with_it.state_dict()[name]), name


def test_no_batch_moves_further_than_the_limits(model: nn.Module, rates: ttpfl.Rates) -> None:
    personal, random = limited(model, rates), torch.Generator().manual_seed(0)
    assert rates.guard is not None
    for _ in range(20):
        personal(100 * torch.randn(20, CLASSES, generator=random))
        for name, limit in rates.guard.limits.norms.items():
            state = personal.state_dict()
            mean = state.get(f"mean.{name}", state.get(f"log_mean.{name}"))
            assert mean is None or float(mean.norm()) <= limit * (1 + 1e-5)
    assert personal.health.shortened == 20


def test_a_stream_of_another_scale_is_learned_after_a_while(model: nn.Module, rates: ttpfl.Rates) -> None:
    personal, x = limited(model, rates), NEW[0][0]
    for one in x[:40].split(1):
        personal(one)
    for one in (100 * x[:WINDOW]).split(1):
        personal(one)
    left_out = personal.health.left_out
    assert 0 < left_out < WINDOW
    personal(100 * x[:1])
    assert personal.health.left_out == left_out


def test_invalid_batches_change_nothing(model: nn.Module, rates: ttpfl.Rates) -> None:
    first, second = guarded(model, rates), guarded(model, rates)
    for x in NEW[0][0][:100].split(20):
        with pytest.raises(BatchError):
            first(torch.full((20, CLASSES), torch.nan))
        with pytest.raises(BatchError):
            first(torch.zeros(0, CLASSES))
        assert torch.equal(first(x), second(x))
    assert first.health == second.health


def adversarial(kind: str, random: torch.Generator) -> Tensor:
    x = torch.randn(2, CLASSES, generator=random)
    return {
        "one class": x + 8 * torch.eye(CLASSES)[0],
        "constant": torch.full((2, CLASSES), 0.3),
        "extreme": x * 10.0 ** float(torch.randint(-20, 20, (1,), generator=random)),
        "zeros": torch.zeros(2, CLASSES),
    }[kind]


@pytest.mark.parametrize("kind", ["one class", "constant", "extreme", "zeros"])
def test_adversarial_streams_leave_the_state_bounded(model: nn.Module, rates: ttpfl.Rates, kind: str) -> None:
    personal, random = guarded(model, rates, decay=0.9), torch.Generator().manual_seed(0)
    personal(NEW[1][0][:2])
    sizes = {name: tensor.numel() for name, tensor in personal.state_dict().items()}
    for _ in range(300):
        assert bool(torch.isfinite(personal(adversarial(kind, random))).all())
    x, y = NEW[0]
    for batch in x[:160].split(20):
        logits = personal(batch)
    state = personal.state_dict()
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state.values())
    assert {name: tensor.numel() for name, tensor in state.items()} == sizes
    right = float((logits.argmax(1) == y[140:160]).float().mean())
    assert right >= float((model(batch).argmax(1) == y[140:160]).float().mean()) - 0.11


def test_a_change_of_the_stream_is_noticed_and_forgotten(model: nn.Module, rates: ttpfl.Rates) -> None:
    far = torch.tensor([6.0, -6.0, 6.0, -6.0])
    personal, fresh, (x, _) = guarded(model, rates), guarded(model, rates), NEW[0]
    for batch in x.split(20):
        personal(batch)
    assert personal.health.changes == 0
    for batch in (x + far).split(20):
        logits = personal(batch)
        torch.testing.assert_close(logits, fresh(batch))
    assert personal.health.changes == 1


def test_a_change_is_noticed_even_if_source_clients_have_a_single_batch(model: nn.Module) -> None:
    rates = ttpfl.learn_rates(model, shifted_clients(40, 20, seed=4), mode="online", guard=True)
    changes = dict.fromkeys((0.0, 6.0), 0)
    for x, _ in NEW:
        for offset in changes:
            personal = guarded(model, rates)
            for batch in (*x[:100].split(20), x[100:120] + offset):
                personal(batch)
            changes[offset] += personal.health.changes
    assert changes[0.0] <= 2
    assert changes[6.0] >= len(NEW)


def test_the_guard_is_learned_with_models_that_have_not_seen_the_client(
    model: nn.Module, rates: ttpfl.Rates
) -> None:
    blind = network()
    with torch.no_grad():
        blind[1].weight.mul_(0.1)
    settings = {"mode": "online", "rounds": 2, "guard": True, "check": False}
    whole, same, other = (
        ttpfl.learn_rates(model, SOURCE, unseen=unseen, **settings).guard  # type: ignore[arg-type]
        for unseen in ((), (model, model), (blind, blind))
    )
    assert whole is not None
    assert other is not None
    assert same == whole
    assert whole.estimator is not None
    assert other.estimator is not None
    # Predictions of the other model are almost uniform, so their entropies are larger.
    entropies = [one.estimator.coefficients.centre[1] for one in (whole, other)]
    assert entropies[1] > entropies[0] + 0.2


def test_clients_like_the_source_clients_rarely_seem_to_change(model: nn.Module, rates: ttpfl.Rates) -> None:
    changes = 0
    for x, _ in shifted_clients(40, 100, seed=3):
        personal = guarded(model, rates)
        for batch in x.split(20):
            personal(batch)
        changes += personal.health.changes
    assert changes <= 6  # 0.1 of the clients, and two standard deviations


def test_ten_thousand_batches(model: nn.Module, rates: ttpfl.Rates) -> None:
    personal, x = guarded(model, rates), NEW[0][0]
    for index in range(10_000):
        logits = personal(x[2 * (index % 100) : 2 * (index % 100) + 2])
    assert bool(torch.isfinite(logits).all())
    assert personal.health.batches == 10_000
    fresh = guarded(model, rates)
    fresh(x)
    right = [float((one.predict(x).argmax(1) == NEW[0][1]).float().mean()) for one in (personal, fresh)]
    assert right[0] >= right[1] - 0.05


def entropy_of(shares: Tensor) -> Tensor:
    return torch.distributions.Categorical(shares).entropy()


def test_figures_of_a_stream() -> None:
    random = torch.Generator().manual_seed(0)
    plain, adapted = torch.randn(2, 30, 5, generator=random, dtype=torch.float64).mul(2).unbind()
    past = Past()
    for rows in torch.arange(30).split(12):
        found = effects(plain[rows], adapted[rows], past)
        past = found.past
    p, q = plain.softmax(1), adapted.softmax(1)
    unit, before, after = torch.tensor(5.0, dtype=torch.float64).log(), p.argmax(1), q.argmax(1)
    changed = before != after
    p_shares, q_shares = p.mean(0), q.mean(0)
    expected = [
        changed.double().mean().sqrt(),
        entropy_of(p).mean() / unit,
        (entropy_of(q) - entropy_of(p)).mean() / unit,
        (p * (p / q).log()).sum(1).mean().sqrt(),
        entropy_of(p_shares) / unit,
        (entropy_of(q_shares) - entropy_of(p_shares)) / unit,
        (p_shares - q_shares).abs().sum() / 2,
        sum(p[i, before[i]] - p[i, after[i]] for i in range(30)) / 30,
        sum(q[i, after[i]] - q[i, before[i]] for i in range(30)) / 30,
        entropy_of(p[24:].mean(0)) / unit,
    ]
    torch.testing.assert_close(found.figures, torch.stack([torch.as_tensor(one) for one in expected]))
    assert past.samples == 30
    torch.testing.assert_close(Past.of(past.numbers).adapted, q.sum(0))


def test_figures_are_finite_for_extreme_logits() -> None:
    extreme = torch.tensor([[1e30, -1e30], [-1e30, 1e30], [0.0, 0.0]])
    assert bool(effects(extreme, -extreme, Past()).figures.isfinite().all())


def test_sums_of_clients_give_the_regression_of_all_samples() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=random, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1]) + 2
    y = torch.randn(50, generator=random, dtype=torch.float64)
    x[:, 0] = 1
    total = Sums.zeros(3)
    for rows in torch.arange(50).split(7):
        total = total + Sums.of(x[rows], y[rows])
    centred = (x - x.mean(0))[:, 1:]
    penalty = (50 * RIDGE) ** 0.5 * centred.std(0, correction=0).diag()
    stacked, target = torch.cat([centred, penalty]), torch.cat([y - y.mean(), y.new_zeros(2)])
    slopes = torch.linalg.lstsq(stacked, target[:, None]).solution[:, 0]
    torch.testing.assert_close(total.solved(), torch.cat([y.mean()[None] - x.mean(0)[1:] @ slopes, slopes]))


def test_distance_from_the_usual_range() -> None:
    random = torch.Generator().manual_seed(0)
    figures = torch.randn(200, FIGURES, generator=random, dtype=torch.float64).cumsum(1)
    rows = for_range(figures)
    coefficients = Coefficients.fitted(Sums.zeros(GAIN), Sums.zeros(4), rows.T @ rows)
    covariance = torch.cov(figures.T, correction=0)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * covariance.diag().diag()
    far = figures[0] - figures.mean(0)
    expected = float(far @ torch.linalg.solve(shrunk, far)) / FIGURES
    assert coefficients.distance(figures[0]) == pytest.approx(expected, rel=1e-6)
    assert rows.shape[1] == RANGE


def exam(right: tuple[int, int, int], alarms: int) -> list[Exam]:
    return [Exam(40, *right, alarms, 0.0)] * len(LESSONS)


def test_false_alarms_are_those_of_clients_that_gain() -> None:
    alarm, gaining, losing = exam((20, 25, 20), 1), exam((20, 25, 25), 0), exam((20, 15, 20), 1)
    assert false_alarm_rate([(one, 20.0) for one in [alarm, *[gaining] * 18, *[losing] * 9]]) == 2 / 20
    assert false_alarm_rate([]) == 1


def estimator(gain: float, centre: float = 0.0, precision: float = 0.0) -> Estimator:
    """Knows the gain of every prediction, and how far each figure is from its centre."""
    unit = torch.eye(GAIN, dtype=torch.float64)[0]
    parts = (gain * unit, 0.5 * unit[:RIGHT], centre + 0 * unit[:FIGURES])
    coefficients = Coefficients(*parts, precision * torch.eye(FIGURES, dtype=torch.float64))
    return Estimator(tuple(coefficients.numbers.tolist()), 0.05, 0.1, 0.1, {})


PLAIN, CHANGED = torch.tensor([[1.0, 0.0]] * 20), torch.tensor([[0.0, 1.0]] * 20)


def test_a_batch_that_seems_to_lose_or_looks_unusual_is_answered_plainly() -> None:
    assert Watch(estimator(0.01 - LARGEST_LOSS), 20).after(PLAIN, CHANGED).adapting
    assert not Watch(estimator(-0.01 - LARGEST_LOSS), 20).after(PLAIN, CHANGED).adapting
    # Figures of equal predictions are 0, but for their entropies.
    sure = torch.tensor([[99.0, 0.0]] * 20)
    assert Watch(estimator(0.0, 1.0, 0.99 * FARTHEST), 20).after(sure, sure).adapting
    evidence = Watch(estimator(0.0, 1.0, 1.01 * FARTHEST), 20).after(sure, sure)
    assert not evidence.adapting
    assert evidence.distance == pytest.approx(1.01 * FARTHEST)
    assert evidence.adapted_accuracy is not None
    assert (evidence.adapted_accuracy.low, evidence.adapted_accuracy.high) == (0, 1)


def test_the_first_batches_that_look_bad_give_an_alarm_and_others_end_it() -> None:
    watch = Watch(estimator(-0.3), 20)
    path = [watch.after(PLAIN, CHANGED) for _ in range(ALARM)]
    assert [one.alarm for one in path] == [False] * (ALARM - 1) + [True]
    assert path[-1].gained == pytest.approx(-0.3 * 20 * ALARM)
    assert (path[-1].alarms, path[-1].plain_batches) == (1, ALARM)
    other = Watch(estimator(0.3), 20)
    other.numbers = watch.numbers
    path = [other.after(PLAIN, CHANGED) for _ in range(ALARM)]
    assert [one.adapting for one in path] == [False] * (ALARM - 1) + [True]
    assert path[-1].alarms == 1


def test_small_batches_count_as_parts_and_a_long_past_is_made_up_for() -> None:
    caution = Caution(20)
    assert not any(caution.allows(False, 1) for _ in range(20 * ALARM - 1))
    assert caution.alarms == 0
    caution.allows(False, 1)
    assert caution.alarms == 1
    for _ in range(1000):
        caution.allows(False, 200)
    assert [caution.allows(True, 20) for _ in range(MOST)] == [False] * (MOST - 1) + [True]


def test_limits_without_classes(model: nn.Module) -> None:
    random = torch.Generator().manual_seed(0)
    head = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    clients = [(torch.randn(30, 3, generator=random), torch.randn(30, 1, generator=random)) for _ in range(6)]
    given = ttpfl.Rates.zeros(head)
    options = {"objective": lambda z: z.square().mean(), "loss": nn.functional.mse_loss}
    rates = ttpfl.learn_rates(head, clients, rounds=3, rates=given, guard=True, **options)
    if rates.values.any():
        assert rates.guard is not None
        assert rates.guard.estimator is None
        assert isinstance(rates.guard.limits, Limits)


def test_a_guard_belongs_to_the_rates_that_it_was_learned_for(model: nn.Module, rates: ttpfl.Rates) -> None:
    assert rates.guard is not None
    again = ttpfl.learn_rates(model, SOURCE[:6], rounds=3, mode="online", rates=rates)
    assert again.guard is None
    assert ttpfl.refine_rates(model, rates, [SOURCE[0]]).guard is None


def test_a_batch_whose_norm_overflows_is_shortened(model: nn.Module, rates: ttpfl.Rates) -> None:
    personal = limited(model, rates)
    personal(5e18 * NEW[0][0][:20])
    assert personal.health.shortened == 1
    personal(NEW[0][0][:20])
    assert float(personal.state_dict()["mean.0.running_mean"].norm()) < 100


def test_a_loaded_state_replaces_the_evidence(model: nn.Module, rates: ttpfl.Rates) -> None:
    personal, other = guarded(model, rates), guarded(model, rates)
    for x in NEW[0][0].split(20):
        personal(x)
    empty = other.state_dict()
    other.load_state_dict(personal.state_dict())
    assert other.health.evidence == personal.health.evidence
    other.load_state_dict(empty)
    assert other.health.evidence == guarded(model, rates).health.evidence


def test_sites_are_told_what_a_guard_reveals() -> None:
    page = (Path(ttpfl.__file__).parent / "flower" / "templates" / "site-README.md").read_text()
    told = " ".join(page.split())
    assert f"sums of products of at most {GAIN} numbers that describe each batch and of {RIGHT} that" in told
    assert f"under {len(LESSONS)} kinds of rates" in told


def lessons_with(model: nn.Module, values: list[float]) -> list[str]:
    """The lessons that a client takes whose rates have these values."""
    zeros = ttpfl.Rates.zeros(model)
    modules = zeros.modules[: len(values)]
    rates = replace(zeros, modules=modules, values=torch.tensor(values))
    x, y = SOURCE[0]
    notebook = studied(Twin(model, modules), rates, [(x[:20], y[:20])], (x, y), entropy, classes=True)
    return [lesson.name for lesson, one in zip(LESSONS, notebook.lessons, strict=True) if one.figures]


def test_a_lesson_that_adapts_like_an_earlier_one_is_left_out(model: nn.Module) -> None:
    alone, every = ", each batch alone", [lesson.name for lesson in LESSONS]
    changes = ("fitting", "three times too large", "flipped")
    expected = {*changes, *(name + alone for name in changes), "0.3 times as large", every[-1]}
    assert set(lessons_with(model, [0.5])) == expected
    assert lessons_with(model, [0.0]) == ["fitting", "fitting" + alone, every[-1]]
    different = lessons_with(model, [0.1, 0.2, 0.3, 0.4])
    assert [name for name in every if name not in different] == []


def test_a_client_whose_batches_overflow_in_some_lessons_is_examined_in_all(model: nn.Module) -> None:
    """An overflow counts as at a new client: the plain model answers, and enough of them are an alarm."""
    zeros, x, y = ttpfl.Rates.zeros(model), 3 * SOURCE[0][0], SOURCE[0][1]
    rates = zeros.with_values(torch.tensor([0.0, 0.0, 1e38, 1e38]))
    batches = list(zip(x.split(10), y.split(10), strict=True))
    notebook = studied(Twin(model, rates.modules), rates, batches, None, entropy, classes=True)
    overflows = [sum(figures is None for figures in lesson.figures) for lesson in notebook.lessons[:-1]]
    assert max(overflows) == len(batches)
    assert min(overflows) < overflows[0]
    assert notebook.samples == len(y)
    unknown = Coefficients.of(torch.zeros(COEFFICIENTS))
    exams = [_exam(lesson, unknown, notebook.largest_batch) for lesson in notebook.lessons]
    assert {exam.samples for exam in exams} == {0, len(y)}  # some lessons are alike, and left out
    right = int((model(x).argmax(1) == y).sum())
    lost = exams[overflows.index(len(batches))]
    assert (lost.plain_right, lost.adapted_right, lost.guarded_right) == (right, right, right)
    assert (lost.alarms, lost.gained) == (1, 0.0)
    layout = GuardVector(len(rates.values), len(rates.modules))
    taught = Taught(
        torch.zeros(2 * len(rates.modules) + 2), notebook.gain_sums(), notebook.right, notebook.usual()
    )
    assert layout.fault(TEACH, layout.taught(taught), notebook.samples) is None
    assert layout.fault(EXAMINE, layout.examined(exams, 0.0), notebook.samples) is None
