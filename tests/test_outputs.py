"""Models whose output is no tensor, models that were compiled, and models that cannot adapt."""

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.helpers.networks import CLASSES, make
from ttpfl.core.outputs import logits_of
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.methods import SourceInfo, names
from ttpfl.methods import make as method


@dataclass
class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """As Hugging Face's models give it: a dictionary with attributes, whose first field may be a loss."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("loss", "logits", "hidden_states"):
            if (value := getattr(self, name)) is not None:
                self[name] = value


@dataclass
class Scores:
    loss: Tensor
    scores: Tensor


class Wrapped(nn.Module):
    """A network whose logits are inside of something else."""

    def __init__(self, network: nn.Module, form: str) -> None:
        super().__init__()
        self.network, self.form = network, form

    def forward(self, x: Tensor) -> Any:
        logits = self.network(x)
        if self.form == "model output":
            return ModelOutput(loss=logits.sum(), logits=logits, hidden_states=(x, x))
        if self.form == "dict":
            return {"features": x, "logits": logits}
        if self.form == "dataclass":
            return Scores(logits.sum(), logits)
        return (logits.sum(), logits, x)


FORMS = ("model output", "dict", "dataclass", "tuple")


def clients(count: int = 3) -> list[tuple[Tensor, Tensor]]:
    torch.manual_seed(5)
    return [(torch.randn(12, 6), torch.randint(CLASSES, (12,))) for _ in range(count)]


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_found_wherever_they_are(form: str) -> None:
    """Learning, personalising and training give the same numbers as with the bare network."""
    bare, data = make("mlp").eval(), clients()
    wrapped = Wrapped(bare, form)
    expected = ttpfl.learn_rates(bare, data, rounds=2, lr=0.2, batch_size=4)
    rates = ttpfl.learn_rates(wrapped, data, rounds=2, lr=0.2, batch_size=4)
    assert torch.equal(rates.values, expected.values)
    assert rates.values.any()
    settings = LearnSettings(rounds=2, lr=0.2, batch_size=4, workers=0)
    assert torch.equal(learn(wrapped, data, settings).rates.values, expected.values)
    x = data[0][0]
    assert torch.equal(ttpfl.Personalizer(wrapped, rates)(x), ttpfl.Personalizer(bare, expected)(x))
    how = TrainSettings(rounds=2, batch_size=4, workers=0)
    trained = train(wrapped, data, how).model.network.state_dict()
    for name, tensor in train(bare, data, how).model.state_dict().items():
        assert torch.equal(trained[name], tensor), name


@pytest.mark.parametrize("name", sorted(set(names()) - {"memo"}))  # which needs images
def test_methods_find_them_as_well(name: str) -> None:
    bare, (x, y) = make("mlp").eval(), clients(1)[0]
    answers = []
    for model in (bare, Wrapped(bare, "model output")):
        one, rates = method(name), ttpfl.Rates.zeros(model)
        rates.values += 0.1
        known = SourceInfo(one.summary(model, [(x, y)]), dict.fromkeys(("all", "params", "stats"), rates))
        answers.append(one.adapter(model, known)(x))
    assert torch.equal(*answers)


def test_an_explicit_function_wins() -> None:
    model = Wrapped(make("mlp").eval(), "dict")
    rates = ttpfl.Rates.zeros(model)
    x = torch.randn(4, 6)
    doubled = ttpfl.Personalizer(model, rates, logits=lambda output: 2 * output["logits"])(x)
    assert torch.equal(doubled, 2 * ttpfl.Personalizer(model, rates)(x))
    with pytest.raises(ttpfl.BatchError, match="logits= returns a dict: it must return a tensor"):
        ttpfl.Personalizer(model, rates, logits=lambda output: output)(x)


@pytest.mark.parametrize("output", [None, "text", {"scores": torch.zeros(2, 3)}, (), (torch.tensor(1.0),)])
def test_what_has_no_logits_is_refused(output: Any) -> None:
    with pytest.raises(ttpfl.BatchError, match=r"the model's output is a .*: pass logits="):
        logits_of(output)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_is_computed_without_compiling(in_place: bool) -> None:
    """The same names and bits as the plain model; the backend would be called if anything was compiled."""
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(graph)
        return graph.forward

    plain, compiled, data = make("mlp").eval(), make("mlp").eval(), clients()
    if in_place:
        compiled.compile(backend=backend)
    else:
        compiled = torch.compile(compiled, backend=backend)
    expected = ttpfl.learn_rates(plain, data, rounds=2, lr=0.2, batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = ttpfl.learn_rates(compiled, data, rounds=2, lr=0.2, batch_size=4)
        personal = ttpfl.Personalizer(compiled, expected, mode="online")  # rates of the plain model fit
        answers = [personal(x) for x, _ in data]
    assert rates.names == expected.names
    assert torch.equal(rates.values, expected.values)
    assert rates.weights_hash == expected.weights_hash
    again = ttpfl.Personalizer(plain, expected, mode="online")
    assert all(torch.equal(answer, again(x)) for answer, (x, _) in zip(answers, data, strict=True))
    assert not calls


def test_training_a_compiled_model_gives_the_plain_one() -> None:
    settings = TrainSettings(rounds=2, batch_size=4, workers=0)
    expected = train(make("mlp"), clients(), settings).model.state_dict()
    got = train(torch.compile(make("mlp"), backend="eager"), clients(), settings).model.state_dict()
    assert got.keys() == expected.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in expected.items())


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore::UserWarning")
def test_a_quantised_model_says_what_cannot_move() -> None:
    torch.backends.quantized.engine = torch.backends.quantized.supported_engines[-1]
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Sequential(nn.ReLU(), nn.Linear(6, 3))).eval()
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    with pytest.raises(ttpfl.ModelError, match=r"layer '1\.1' is quantised .*before quantisation"):
        ttpfl.learn_rates(quantised, [(torch.randn(8, 6), torch.randint(3, (8,)))], rounds=1)


def test_a_model_that_stops_gradients_says_so() -> None:
    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> None:
            return None

    class Stopped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: Tensor) -> Tensor:
            return Stop.apply(self.norm(x))

    model, batch = Stopped().eval(), (torch.randn(8, 6), torch.randint(6, (8,)))
    with pytest.raises(ttpfl.ModelError, match="no gradient of the loss reaches any module that has a rate"):
        ttpfl.refine_rates(model, ttpfl.Rates.zeros(model, only="stats"), [batch])
