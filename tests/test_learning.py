"""Learning rates: one client's turn, rounds over cohorts, the cache."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ttpfl
from tests.helpers.networks import CLASSES, NETWORKS, batches, make, some_rates
from tests.helpers.untouched import untouched
from ttpfl.core.direction import Change
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.learning import draw_cohort


def clients(name: str, count: int = 4, samples: int = 11) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(5)
    return [(NETWORKS[name][1](samples), torch.randint(CLASSES, (samples,))) for _ in range(count)]


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("name", NETWORKS)
def test_model_and_rates_stay_as_they_were(name: str, mode: str) -> None:
    model, rates, data = make(name).train(), some_rates(make(name)), batches(name)
    before = rates.values.clone()
    with untouched(model):
        refined = ttpfl.refine_rates(model, rates, data, mode=mode)
    assert torch.equal(rates.values, before)
    assert refined.mode == mode
    assert not torch.equal(refined.values, before)


def test_model_stays_as_it_was_when_something_fails() -> None:
    model = make("cnn").train()
    (x, y), bad = batches("cnn")[0], torch.full((8, 3, 32, 32), float("nan"))
    for batch in ((bad, y), (x, y + 10), (x[:, :2], y)):
        with untouched(model), pytest.raises(ttpfl.BatchError) as caught:
            ttpfl.refine_rates(model, ttpfl.Rates.zeros(model), [(x, y), batch])
        assert caught.value.__notes__ == ["in batch 1 of this client"]


@settings(max_examples=12, deadline=None)
@given(
    name=st.sampled_from(["mlp", "groupnorm", "cnn18", "view"]),
    mode=st.sampled_from(["batch", "online"]),
    budget=st.sampled_from([0, 20_000, 10**9]),
    granularity=st.sampled_from(["tensor", "layer", "kind"]),
    order=st.lists(st.integers(0, 2), min_size=2, max_size=6),
)
def test_cache_changes_nothing(name: str, mode: str, budget: int, granularity: str, order: list[int]) -> None:
    model = make(name)
    rates = some_rates(model, granularity=granularity)
    stream = [batches(name)[i] for i in order]
    cache = ttpfl.DirectionCache(budget)
    expected = ttpfl.refine_rates(model, rates, stream, mode=mode)
    for _ in range(2):
        cached = ttpfl.refine_rates(model, rates, stream, mode=mode, cache=cache)
        assert torch.equal(cached.values, expected.values)
        assert cache.bytes <= budget


def test_cache_goes_by_content() -> None:
    model = make("mlp")
    rates = some_rates(model)
    (x, y), (x2, _) = batches("mlp")[:2]
    cache = ttpfl.DirectionCache(10**8)

    def hits(model: nn.Module, x: Tensor, **kwargs: object) -> int:
        before = cache.hits
        expected = ttpfl.refine_rates(model, rates, [(x, y)], **kwargs).values
        got = ttpfl.refine_rates(model, rates, [(x, y)], cache=cache, **kwargs).values
        assert torch.equal(got, expected)
        return cache.hits - before

    assert hits(model, x) == 0
    assert hits(copy.deepcopy(model), x.clone()) == 1
    assert hits(model, x2) == 0
    x += 1  # the same object with other content
    assert hits(model, x) == 0
    x -= 1
    with torch.no_grad():
        model[0].weight.data[0, 0] += 1e-3
    assert hits(model, x) == 0
    model[1].running_mean[0] += 1e-3
    assert hits(model, x) == 0
    assert hits(model, x) == 1
    assert hits(model, x, objective=lambda logits: -logits.logsumexp(1).mean()) == 0
    # The same weights in a network that computes something else.
    other = nn.Sequential(model[0], model[1], nn.Tanh(), model[3], model[4])
    assert hits(other, x) == 0


def test_cache_drops_the_least_recently_used() -> None:
    model = make("mlp")
    rates, stream = some_rates(model), batches("mlp")
    sizes = ttpfl.DirectionCache(10**9)
    ttpfl.refine_rates(model, rates, stream[:1], cache=sizes)
    cache = ttpfl.DirectionCache(2 * sizes.bytes)
    for index in (0, 1, 0, 2):  # 2 drives out 1, since 0 was used after it
        ttpfl.refine_rates(model, rates, [stream[index]], cache=cache)
    assert (len(cache), cache.hits, cache.misses) == (2, 1, 3)
    ttpfl.refine_rates(model, rates, [stream[0]], cache=cache)
    assert cache.hits == 2
    ttpfl.refine_rates(model, rates, [stream[1]], cache=cache)
    assert cache.misses == 4
    with pytest.raises(ValueError, match="budget_bytes must be a non-negative number, got -1"):
        ttpfl.DirectionCache(-1)


def test_rounds_are_turns_and_averages() -> None:
    model, data = make("mlp"), clients("mlp")
    rates = ttpfl.Rates.zeros(model)
    for number in range(3):
        turns = []
        for index in draw_cohort(range(4), 2, seed=9, number=number):
            x, y = data[index]
            split = [(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
            turn = rates
            for _ in range(2):
                turn = ttpfl.refine_rates(model, turn, split, lr=0.3)
            turns.append(turn)
        rates = ttpfl.average_rates(turns)
    with untouched(model):
        learned = ttpfl.learn_rates(
            model, data, rounds=3, cohort=2, lr=0.3, batch_size=4, local_epochs=2, seed=9
        )
    assert torch.equal(learned.values, rates.values)
    expected = {"rounds": 3, "clients": 4, "cohort": 2, "lr": 0.3, "batch_size": 4, "local_epochs": 2}
    assert expected.items() <= learned.learned.items()
    assert learned.learned["library"] == ttpfl.__version__


def test_all_kinds_of_clients_give_the_same() -> None:
    model, data = make("mlp"), clients("mlp")
    arguments = {"rounds": 2, "cohort": 3, "lr": 0.2, "batch_size": 4}
    expected = ttpfl.learn_rates(model, data, **arguments).values
    kinds = [
        {f"site {i}": pair for i, pair in enumerate(data)},
        [TensorDataset(x, y) for x, y in data],
        [list(zip(x, y, strict=True)) for x, y in data],
        [DataLoader(TensorDataset(x, y), batch_size=4) for x, y in data],
        tuple(data),
    ]
    for kind in kinds:
        with untouched(model):
            assert torch.equal(ttpfl.learn_rates(model, kind, **arguments).values, expected)


def test_a_shuffling_loader_keeps_one_order() -> None:
    model, data = make("mlp"), clients("mlp", count=1)
    loaders = [DataLoader(TensorDataset(*data[0]), batch_size=4, shuffle=True)]
    cache = ttpfl.DirectionCache(10**9)
    with untouched(model):
        ttpfl.learn_rates(model, loaders, optimizer="sgd", rounds=5, cache=cache)
    assert cache.misses == 3


def test_warm_start_and_more_rounds() -> None:
    model, data = make("mlp"), clients("mlp")
    half = ttpfl.learn_rates(model, data, rounds=2, lr=0.2, batch_size=4)
    whole = ttpfl.learn_rates(model, data, rounds=4, lr=0.2, batch_size=4)
    again = ttpfl.learn_rates(model, data, rounds=2, lr=0.2, batch_size=4, rates=half)
    assert torch.equal(again.values, whole.values)  # full cohorts do not depend on the round
    coarse = ttpfl.Rates.zeros(model, granularity="layer", only="params")
    assert ttpfl.learn_rates(model, data, rounds=1, rates=coarse).members == coarse.members


def test_learning_helps() -> None:
    """Under label shift, adapted predictions of held-out clients get better than plain ones."""
    torch.manual_seed(0)
    model = make("mlp")
    centres = torch.randn(CLASSES, 6) * 0.7

    def client(major: int) -> tuple[Tensor, Tensor]:
        y = torch.where(torch.rand(40) < 0.8, major, torch.randint(CLASSES, (40,)))
        return centres[y] + torch.randn(40, 6), y

    train_y = torch.randint(CLASSES, (800,))
    train_x = centres[train_y] + torch.randn(800, 6)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model.train()(train_x), train_y).backward()
        optimizer.step()
    model.eval()
    rates = ttpfl.learn_rates(model, [client(i % 5) for i in range(20)], rounds=60, lr=0.5)

    def accuracy(rates: ttpfl.Rates, mode: str) -> float:
        hits = []
        for i in range(20):
            x, y = client(i % 5)
            personal = ttpfl.Personalizer(model, rates, mode)
            hits += [(personal(x[j : j + 20]).argmax(1) == y[j : j + 20]).float().mean() for j in (0, 20)]
        return torch.stack(hits).mean().item()

    torch.manual_seed(1)
    plain = accuracy(ttpfl.Rates.zeros(model), "batch")
    torch.manual_seed(1)
    adapted = accuracy(rates, "batch")
    torch.manual_seed(1)
    online = accuracy(rates, "online")
    assert adapted > plain + 0.03
    assert online > plain + 0.03


def test_cohorts() -> None:
    names = list("abcdefghij")
    for number in range(5):
        drawn = draw_cohort(names, 4, seed=1, number=number)
        assert drawn == draw_cohort(names, 4, seed=1, number=number)
        assert len(set(drawn)) == 4
    assert draw_cohort(names, 10, seed=1, number=0) == names
    assert len({tuple(draw_cohort(names, 4, seed=1, number=n)) for n in range(20)}) > 10
    assert draw_cohort(names, 4, seed=1, number=0) != draw_cohort(names, 4, seed=2, number=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rounds": 0}, "rounds must be a positive integer, got 0"),
        ({"rounds": 2.5}, "rounds must be a positive integer, got 2.5"),
        ({"objective": lambda logits: logits.sum(1)}, r"objective= returns a tensor of shape \(11,\)"),
        ({"objective": lambda logits: 0.5}, "objective= returns a float"),
        ({"loss": partial(F.cross_entropy, reduction="none")}, r"loss= returns a tensor of shape \(11,\)"),
        ({"cohort": 0}, "cohort must be a positive integer, got 0"),
        ({"cohort": 5}, "cohort is 5, but there are only 4 clients"),
        ({"local_epochs": 0}, "local_epochs must be a positive integer, got 0"),
        ({"lr": 0.0}, "lr must be a positive number, got 0.0"),
        ({"lr": float("nan")}, "lr must be a positive number, got nan"),
        ({"mode": "offline"}, "mode must be 'batch' or 'online', got 'offline'"),
        ({"batch_size": 0}, "batch_size must be a positive integer, got 0"),
    ],
)
def test_bad_settings(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ttpfl.TtpflError, match=message):
        ttpfl.learn_rates(make("mlp"), clients("mlp"), **({"rounds": 1} | arguments))


def test_no_clients() -> None:
    with pytest.raises(ttpfl.BatchError, match="no clients"):
        ttpfl.learn_rates(make("mlp"), [])


def test_divergence_is_said() -> None:
    model = make("cnn")
    with pytest.raises(ttpfl.RatesError, match="gradient of the loss is not finite: lower lr"):
        ttpfl.refine_rates(model, ttpfl.Rates.zeros(model), batches("cnn") * 4, lr=1e30)


class Pair(nn.Module):
    """Two inputs, a keyword, and an output that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 4), nn.Embedding(7, 4)
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, one: Tensor, two: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        return {"logits": self.head(self.norm(self.one(one) + self.two(two)) * scale)}


def test_several_inputs_and_dict_outputs() -> None:
    model = Pair()
    one, two, y = torch.randn(6, 3), torch.randint(7, (6,)), torch.randint(3, (6,))
    rates = ttpfl.Rates.zeros(model)
    forms = [((one, two), y), ({"one": one, "two": two}, y), {"one": one, "two": two, "labels": y}]
    with untouched(model):
        refined = [
            ttpfl.refine_rates(model, rates, [form], logits=lambda output: output["logits"]) for form in forms
        ]
        assert torch.equal(refined[0].values, refined[1].values)
        assert torch.equal(refined[0].values, refined[2].values)
        assert refined[0].values.all()
    by_itself = ttpfl.refine_rates(model, rates, forms[:1])
    assert torch.equal(by_itself.values, refined[0].values)


def test_other_objectives_and_losses() -> None:
    """A multi-label network, served with an objective and a loss of its own."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    x, y = torch.randn(10, 4), torch.randint(2, (10, 1)).float()
    rates = ttpfl.Rates.zeros(model)
    with pytest.raises(ttpfl.BatchError, match=r"logits of shape \(10, 1\) are not.*objective="):
        ttpfl.refine_rates(model, rates, [(x, y)])
    with pytest.raises(ttpfl.BatchError, match="objective="):
        ttpfl.Personalizer(model, some_rates(model))(x)

    def uncertainty(logits: Tensor) -> Tensor:
        return (logits.sigmoid() * (1 - logits.sigmoid())).mean()

    with pytest.raises(ttpfl.BatchError, match="pass loss="):
        ttpfl.refine_rates(model, rates, [(x, y)], objective=uncertainty)
    refined = ttpfl.refine_rates(
        model, rates, [(x, y)], objective=uncertainty, loss=F.binary_cross_entropy_with_logits
    )
    assert refined.values.all()
    personal = ttpfl.Personalizer(model, refined, objective=uncertainty)
    assert personal(x).shape == (10, 1)
    assert 0 <= personal.health.last.entropy_before <= 0.25


def test_half_precision_models_learn() -> None:
    model = make("mlp").to(torch.bfloat16)
    single = copy.deepcopy(model).float()
    x, y = batches("mlp", size=32)[0]
    x = x.to(torch.bfloat16)
    half = ttpfl.refine_rates(model, ttpfl.Rates.zeros(model), [(x, y)], lr=1.0)
    full = ttpfl.refine_rates(single, ttpfl.Rates.zeros(single), [(x.float(), y)], lr=1.0)
    assert half.values.dtype == torch.float32
    assert (half.values - full.values).norm() < 0.1 * full.values.norm()


def test_proposition_3_1() -> None:
    """After log(q(y)/p(y)) is added to the last bias, a classifier calibrated on p is calibrated on q."""
    torch.manual_seed(0)
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.1, 0.2, 0.7]).double()
    likelihood = torch.rand(3, 5, dtype=torch.float64)  # p(x|y) over five inputs
    likelihood /= likelihood.sum(1, keepdim=True)
    posterior = (p[:, None] * likelihood / (p[:, None] * likelihood).sum(0)).T  # p(y|x)
    model = nn.Linear(5, 3).double()
    with torch.no_grad():
        model.weight.copy_(posterior.log().T)
        model.bias.zero_()
    x = torch.eye(5, dtype=torch.float64)  # one-hot: the logits are the log posterior
    rates = ttpfl.Rates.zeros(model)
    rates.values = torch.tensor([0.0, 1.0])
    bias_direction = (q / p).log()
    objective = lambda logits: -(logits * bias_direction).sum(1).mean()  # noqa: E731
    adapted = ttpfl.Personalizer(model, rates, objective=objective)(x)
    target = (q[:, None] * likelihood / (q[:, None] * likelihood).sum(0)).T
    torch.testing.assert_close(adapted.softmax(1), target)


def test_a_cache_that_keeps_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="keep must be 'recent' or 'first', got 'frist'"):
        DirectionCache(100, keep="frist")


def test_cache_that_keeps_the_first_serves_turns_that_do_not_all_fit() -> None:
    def direction(number: int) -> dict[str, Change]:
        return {"w": Change(torch.full((4,), float(number)), None, (4,))}

    recent, first = DirectionCache(budget_bytes=40), DirectionCache(budget_bytes=40, keep="first")
    for cache in (recent, first):
        for number in (0, 1, 2) * 5:  # room for two of three
            assert cache.get(number, partial(direction, number))["w"].value[0] == number
    assert recent.hits == 0
    assert first.hits == 8
    assert first.bytes == 32
