"""The guard: harm that it must stop, gain that it must keep, and accidents that must not matter."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from ttpfl.core.gain import GAIN, RIDGE, Past, Sums, effects
from ttpfl.core.guard import Estimator, Guard, Limits
from ttpfl.core.influence import WINDOW
from ttpfl.core.watch import Watch
from ttpfl.errors import BatchError, RatesError, RatesFileError
from ttpfl.federation import LearnSettings, learn
from ttpfl.federation.server.guard_fit import threshold_of

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


def test_gain_is_kept_where_rates_fit(model: nn.Module, rates: ttpfl.Rates) -> None:
    plain, adapted = accuracy(model), accuracy(guarded(model, rates, guard=False))
    assert adapted > plain + 0.05
    assert accuracy(guarded(model, rates)) >= plain + 0.95 * (adapted - plain)


@pytest.mark.parametrize("factor", [-1.0, -3.0])
def test_harm_is_stopped_where_rates_are_flipped(model: nn.Module, rates: ttpfl.Rates, factor: float) -> None:
    flipped = rates.with_values(factor * rates.values)
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
    flipped = rates.with_values(-rates.values)
    personal = guarded(model, flipped, on_alarm=heard.append)
    for x in NEW[0][0].split(20):
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
    flipped, (x, _) = rates.with_values(-rates.values), NEW[0]
    first, second = guarded(model, flipped), guarded(model, flipped)
    for batch in x[:100].split(20):
        first(batch)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x[100:120]), second(x[100:120]))
    assert first.health.evidence == second.health.evidence
    broken = {**first.state_dict(), "evidence": torch.full((11,), torch.nan)}
    with pytest.raises(RatesError, match="evidence"):
        second.load_state_dict(broken)


def test_rates_without_a_guard_work_as_before(model: nn.Module, rates: ttpfl.Rates) -> None:
    old, x = replace(rates, guard=None), NEW[0][0][:20]
    assert torch.equal(guarded(model, old)(x), guarded(model, rates, guard=False)(x))
    assert guarded(model, old).health.evidence is None


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
    [{"spread": -1.0}, {"spread": float("nan")}, {"norms": {"1.weight": "much"}}, {"batch_size": None}],
)
def test_invalid_guard_is_refused(rates: ttpfl.Rates, change: dict[str, object]) -> None:
    assert rates.guard is not None
    card = rates.guard.as_json()
    card["limits"] |= change
    with pytest.raises(RatesFileError, match="guard"):
        Guard.from_json(card)


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


def test_only_changed_predictions_have_features() -> None:
    plain = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 0.0]])
    adapted = torch.tensor([[1.0, 2.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 1.0]])
    found = effects(plain, adapted, Past(7, 1.0))
    assert found.changed.tolist() == [1, 0, 1]
    assert not found.gain[1].any()
    p, q = plain.double().softmax(1), adapted.double().softmax(1)
    expected = torch.stack([p.new_tensor(1), p[0, 0], p[0, 1], q[0, 0], q[0, 1]])
    torch.testing.assert_close(found.gain[0, :5], expected)
    spread = [float(torch.distributions.Categorical(part.mean(0)).entropy()) for part in (p, q)]
    share, evenness = 3 / 10, spread[1] - spread[0]
    assert found.gain[0, -3:].tolist() == pytest.approx([share, evenness, share * evenness])


def test_sums_of_clients_give_the_regression_of_all_samples() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=random, dtype=torch.float64)
    y = torch.randn(50, generator=random, dtype=torch.float64)
    total = Sums.zeros(3)
    for rows in torch.arange(50).split(7):
        total = total + Sums.of(x[rows], y[rows])
    scale = x.square().sum(0).sqrt()
    penalty = RIDGE**0.5 * torch.eye(3, dtype=torch.float64) * scale
    stacked, target = torch.cat([x, penalty]), torch.cat([y, y.new_zeros(3)])
    expected = torch.linalg.lstsq(stacked, target[:, None]).solution[:, 0]
    torch.testing.assert_close(total.solved(), expected)


def test_threshold_holds_for_one_more_client_of_the_same_kind() -> None:
    values = torch.randn(100, generator=torch.Generator().manual_seed(0)).tolist()
    for count in (5, 30, 100):
        alarms = 0
        for left_out in range(count):
            others = values[:left_out] + values[left_out + 1 : count]
            threshold, stated = threshold_of(others, 0.1)
            alarms += values[left_out] < -threshold
        assert alarms / count <= max(stated, 0.1) + 1e-9


def test_evidence_stops_at_the_threshold_and_continues_when_made_up_for() -> None:
    plain, changed, same = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 0.0]])
    harmful = Estimator((-0.3, *([0.0] * (GAIN - 1))), (0.5, 0.0, 0.0, 0.0), 0.5, 0.05, 0.1, 0.1, {})
    watch = Watch(harmful)
    path = [watch.after(plain, logits) for logits in (changed, changed, same, changed)]
    assert [one.adapting for one in path] == [True, False, False, False]
    assert path[-1].gained == pytest.approx(-0.9)
    assert path[-1].alarms == 1
    watch = Watch(replace(harmful, gain=(0.3, *([0.0] * (GAIN - 1)))))
    watch.numbers = torch.tensor([4.0, 3.0, -0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])  # stopped earlier
    path = [watch.after(plain, changed) for _ in range(2)]
    assert [one.adapting for one in path] == [False, True]


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
