"""What every test-time method must hold to, whoever wrote it: a new method is in here by itself."""

import copy
import math
from contextlib import suppress
from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.helpers import networks
from tests.helpers.untouched import untouched
from ttpfl import methods
from ttpfl.errors import BatchError, MethodError, RatesError
from ttpfl.methods import Adapter, SourceInfo, table

# BatchNorm in front of images and of vectors; GroupNorm, and LayerNorm in a transformer.
NETWORKS = ("cnn18", "groupnorm", "vit")
# Methods that need running statistics of BatchNorm; they refuse networks without.
NEED_BATCH_NORM = ("atp-stats", "bn-adapt", "oftta")
REFUSED = [(method, network) for network in NETWORKS[1:] for method in NEED_BATCH_NORM]
PAIRS = [(m, n) for n in NETWORKS for m in methods.names() if (m, n) not in REFUSED]
# MEMO remembers nothing, but draws its augmentations anew each time.
FORGETFUL = [(m, n) for m, n in PAIRS if not methods.get(m).stateful and m != "memo"]
# Methods that act once in a while do so within the short streams of these tests.
CONFIGS: dict[str, dict[str, object]] = {
    "cotta": {"augmentations": 2},
    "rotta": {"capacity": 8},
    "rdumb": {"interval": 2},
}


def rates_for(model: nn.Module) -> dict[str, ttpfl.Rates]:
    found = {}
    for kind, only in (("all", None), ("params", "params"), ("stats", "stats")):
        with suppress(RatesError):  # a network without running statistics
            found[kind] = networks.some_rates(model, only=only)
    return found


class Case:
    """A method on a network, with all that the source side knows."""

    def __init__(self, method: str, network: str) -> None:
        self.method = methods.make(method, **CONFIGS.get(method, {}))
        self.network = network
        self.model = networks.make(network)
        clients = [networks.batches(network, count=2, seed=seed) for seed in (11, 12)]
        summary = methods.add(self.method.summary(self.model, client) for client in clients)
        self.source_info = SourceInfo(summary=summary, rates=rates_for(self.model))

    def adapter(self) -> Adapter:
        return self.method.adapter(self.model, self.source_info)

    def stream(self, sizes: tuple[int, ...] = (8, 8, 3), seed: int = 1) -> list[Tensor]:
        return [networks.batches(self.network, 1, size, seed + i)[0][0] for i, size in enumerate(sizes)]


@pytest.fixture(scope="module")
def cases() -> dict[tuple[str, str], Case]:
    return {}


@pytest.fixture(params=PAIRS, ids="-".join)
def case(request: pytest.FixtureRequest, cases: dict[tuple[str, str], Case]) -> Case:
    if request.param not in cases:
        cases[request.param] = Case(*request.param)
    return cases[request.param]


def answers(adapter: Adapter, batches: list[Tensor]) -> list[Tensor]:
    return [adapter(batch) for batch in batches]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(("method", "network"), REFUSED)
def test_a_network_that_does_not_fit_is_refused_with_a_reason(method: str, network: str) -> None:
    with pytest.raises(MethodError) as refusal:
        Case(method, network).adapter()
    assert len(str(refusal.value)) > 30, "it must say why, and what to do"


@pytest.mark.parametrize("case", FORGETFUL, indirect=True, ids="-".join)
def test_a_method_that_says_so_does_not_remember(case: Case) -> None:
    first, second, third = case.stream()
    adapter = case.adapter()
    alone = case.adapter()(third)
    assert torch.equal(answers(adapter, [first, second, third])[2], alone)


def test_answers_are_logits_of_every_sample_and_nothing_else_changes(case: Case) -> None:
    batches = case.stream()
    kept = copy.deepcopy(batches)
    with untouched(case.model):
        logits = answers(case.adapter(), batches)
    assert [tuple(x.shape) for x in logits] == [(len(x), networks.CLASSES) for x in batches]
    assert all(torch.isfinite(x).all() and not x.requires_grad for x in logits)
    assert equal(batches, kept)


def test_the_summary_leaves_the_model_alone(case: Case) -> None:
    client = networks.batches(case.network, count=2, seed=11)
    with untouched(case.model), torch.inference_mode():
        summary = case.method.summary(case.model, client)
    assert all(isinstance(value, Tensor) and torch.isfinite(value).all() for value in summary.values())
    assert bool(summary) == case.method.needs_source


def test_deterministic_and_reset_is_exact(case: Case) -> None:
    batches = case.stream()
    adapter = case.adapter()
    fresh = answers(adapter, batches)
    torch.manual_seed(12345)  # the caller's random numbers do not matter
    assert equal(answers(case.adapter(), batches), fresh)
    adapter.reset()
    adapter.reset()
    assert equal(answers(adapter, batches), fresh)


def test_a_batch_of_one_and_a_leftover(case: Case) -> None:
    batches = case.stream((1, 1, 8, 1, 2))
    assert all(torch.isfinite(logits).all() for logits in answers(case.adapter(), batches))


def test_what_cannot_be_used_is_refused_and_teaches_nothing(case: Case) -> None:
    first, second, third = case.stream((8, 8, 8))
    clean, adapter = case.adapter(), case.adapter()
    expected = answers(clean, [first, third])
    got = [adapter(first)]
    broken, endless = second.clone(), second.clone()
    broken[3, 0], endless[2, 0] = float("nan"), float("inf")
    for bad in (broken, endless, second[:0]):
        with pytest.raises(BatchError):
            adapter(bad)
    with pytest.raises((BatchError, MethodError)):
        adapter(second[:, :2])  # an image with too few channels
    got.append(adapter(third))
    assert equal(got, expected)


def test_the_callers_mode_does_not_matter(case: Case) -> None:
    batches = case.stream()
    expected = answers(case.adapter(), batches)
    with torch.inference_mode():
        adapter = case.adapter()
        own = [batch * 1 for batch in batches]  # made in this mode
        assert equal(answers(adapter, own), expected)
        adapter.reset()
    with torch.no_grad():
        assert equal(answers(adapter, own), expected)
    adapter.reset()
    assert equal(answers(adapter, batches), expected)


def test_two_clients_never_influence_each_other(case: Case) -> None:
    mine, yours = case.stream(), case.stream(seed=50)
    alone = answers(case.adapter(), mine)
    me, you = case.adapter(), case.adapter()
    together = []
    for x, y in zip(mine, yours, strict=True):
        you(y)
        together.append(me(x))
        you.reset()
        you(y)
    assert equal(together, alone)


def test_later_changes_of_the_model_do_not_reach_a_client(case: Case) -> None:
    expected = answers(case.adapter(), case.stream())
    model = copy.deepcopy(case.model)
    adapter = case.method.adapter(model, case.source_info)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(1)
    adapter.reset()
    assert equal(answers(adapter, case.stream()), expected)


def test_answers_belong_to_the_caller(case: Case) -> None:
    expected = answers(case.adapter(), case.stream())
    adapter, got = case.adapter(), []
    for batch in case.stream():
        own = batch.clone()
        logits = adapter(own)
        got.append(logits.clone())
        logits.fill_(7)
        own.fill_(7)
    assert equal(got, expected)


@pytest.mark.parametrize("name", methods.names())
def test_a_model_that_works_in_place_does_not_reach_the_callers_data(name: str) -> None:
    model = nn.Sequential(nn.ReLU(inplace=True), networks.make("cnn18"))
    method = methods.make(name, **CONFIGS.get(name, {}))
    client = networks.batches("cnn18")
    kept = copy.deepcopy(client)
    source_info = SourceInfo(methods.add([method.summary(model, client)]), rates_for(model))
    adapter = method.adapter(model, source_info)
    for x, _ in client:
        adapter(x)
    assert equal([x for x, _ in client], [x for x, _ in kept])


@pytest.mark.parametrize("name", methods.names())
def test_a_method_explains_itself(name: str) -> None:
    cls = methods.get(name)
    assert cls.__doc__
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "a docstring of its own, not the dataclass's"
    [entry] = table.entries([name])
    assert entry.adapts
    assert bool(entry.paper) == (name != "none"), "a paragraph 'Paper: ...' says where it comes from"
    assert cls.__dataclass_params__.frozen
    for entry in fields(cls):
        assert entry.metadata.get("help"), f"{entry.name} has no help"
        grid = entry.metadata["grid"]
        if grid:
            assert len(set(grid)) == len(grid)
            if isinstance(entry.default, str):
                continue  # of words there are as many as there are
            assert len(grid) >= 4, f"{entry.name} has too few values to choose from"
            numbers = [value for value in grid if value is not None]  # None: no limit
            ordered = numbers == sorted(numbers)
            assert entry.default in grid or ordered, f"{entry.name}: {grid}"


@pytest.mark.parametrize("name", methods.names())
def test_every_hyper_parameter_has_limits(name: str) -> None:
    for entry in fields(methods.get(name)):
        for value in (entry.default, *entry.metadata["grid"]):
            methods.make(name, **{entry.name: value})
        for wrong in ([], object(), *([float("nan"), "1"] if not isinstance(entry.default, str) else [1])):
            with pytest.raises(MethodError, match=f"{entry.name} must be .*, got "):
                methods.make(name, **{entry.name: wrong})


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("bn-adapt", {"prior": -1.0}),
        ("tent", {"lr": -0.1}),
        ("tent", {"lr": math.inf}),
        ("shot", {"beta": -0.3}),
        ("eata", {"fisher": -1.0}),
        ("eata", {"optimizer": "lbfgs"}),
        ("sar", {"rho": -0.05}),
        ("rotta", {"capacity": 0}),
        ("rotta", {"capacity": 2.5}),
        ("rotta", {"rate": 1.5}),
        ("surgical", {"lr": -0.1}),
        ("memo", {"augmentations": 0}),
        ("memo", {"lr": -1.0}),
        ("memo", {"prior_strength": -1.0}),
        ("t3a", {"supports": True}),
        ("bbse", {"cutoff": 1.0}),
        ("em", {"source_prior": "no"}),
        ("em", {"iterations": None}),
        ("em", {"pseudo_counts": -1.0}),
        ("bbse-online", {"temperature": 0.0}),
        ("oftta", {"shallow": 0.0}),
        ("oftta", {"deep": 1.5}),
        ("rdumb", {"interval": 0}),
        ("cotta", {"restore": 1.5}),
        ("cotta", {"augmentations": 0}),
        ("fixed-rates", {"mode": "offline"}),
    ],
    ids=str,
)
def test_values_that_cannot_work_are_refused(name: str, config: dict[str, object]) -> None:
    [(key, value)] = config.items()
    with pytest.raises(MethodError) as caught:
        methods.make(name, **config)
    assert str(caught.value).startswith(f"{key} must be ")
    assert f", got {value!r}" in str(caught.value)


@pytest.mark.parametrize("name", methods.names())
def test_a_network_of_one_linear_layer_works_or_is_refused_with_a_reason(name: str) -> None:
    model = nn.Sequential(nn.Linear(6, networks.CLASSES))
    client = networks.batches("mlp")
    method = methods.make(name)
    logits, refusal = torch.zeros(1), "none, and logits that are finite"
    try:
        source_info = SourceInfo(methods.add([method.summary(model, client)]), rates_for(model))
        logits = method.adapter(model, source_info)(client[0][0])
    except (MethodError, BatchError) as error:
        refusal = str(error)
    assert torch.isfinite(logits).all()
    assert len(refusal) > 30, "it must say why, and what to do"
