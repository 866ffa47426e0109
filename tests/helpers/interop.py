"""What every network of another library must be able to do, compared with the slow float64 implementation."""

import copy
import importlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ttpfl
from tests.helpers.reference import PlainBatchNorm, Reference, State

CLASSES = 3
BATCH, SAMPLES, STEPS = 8, 16, 20
DOUBLE = 1e-8  # of the largest change of a rate or a logit
LR = 1e-3

Batch = Tensor | Mapping[str, Tensor]
Draw = Callable[[int], Batch]
"""Draws this many samples."""


def needs(package: str) -> ModuleType:
    """A package; tests are skipped if it cannot be imported, except in `make test-interop`."""
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError, OSError) as error:
        if "TTPFL_TEST_INTEROP" in os.environ:
            raise
        pytest.skip(f"{package} cannot be imported ({error}): make test-interop", allow_module_level=True)


def call(model: nn.Module, x: Batch) -> Any:
    return model(**x) if isinstance(x, Mapping) else model(x)


def logits_of(output: Any) -> Tensor:
    """Written for these tests alone."""
    return output if isinstance(output, Tensor) else output.logits


class PlainLogits(Reference):
    """The reference, for inputs by name, integers, outputs with logits, and timm's BatchNormAct2d."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        for path, layer in model.named_modules():
            if hasattr(layer, "act") and isinstance(self.model.get_submodule(path), PlainBatchNorm):
                self.model.get_submodule(path).register_forward_hook(lambda _, x, y, act=layer.act: act(y))

    def logits(self, x: Batch, state: State) -> Tensor:
        self.model.load_state_dict(state, strict=False)
        return logits_of(call(self.model, in_double(x)))


class Named(dict[str, Tensor]):
    """Tensors by name, with the number of samples as its length, as the reference expects."""

    def __len__(self) -> int:
        return len(next(iter(self.values())))


def in_double(x: Batch) -> Batch:
    """What is not integers, in double precision."""
    if isinstance(x, Tensor):
        return x.double() if x.is_floating_point() else x
    return Named({name: in_double(tensor) for name, tensor in x.items()})


def by_name(rates: ttpfl.Rates) -> dict[str, float]:
    return dict(zip(rates.names, rates.values.tolist(), strict=True))


def client(draw: Draw) -> Any:
    """Labelled samples, as the library of the network would pass them."""
    x, y = draw(SAMPLES), torch.randint(CLASSES, (SAMPLES,))
    return {**x, "labels": y} if isinstance(x, Mapping) else (x, y)


def barely_trained(model: nn.Module, draw: Draw) -> None:
    """A few steps: running statistics know the data, and no layer is zero any more."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(logits_of(call(model, draw(SAMPLES))), torch.randint(CLASSES, (SAMPLES,))).backward()
        optimizer.step()


def some_rates(model: nn.Module) -> ttpfl.Rates:
    zeros = ttpfl.Rates.zeros(model)
    return zeros.with_values(0.05 + 0.05 * torch.rand(len(zeros.names)))


def check_learning(model: nn.Module, draw: Draw) -> None:
    """Rates are learned with all defaults, and the model stays as it was."""
    before = copy.deepcopy(model.state_dict())
    with warnings.catch_warnings(action="ignore", category=ttpfl.RatesWarning):  # there is nothing to gain
        rates = ttpfl.learn_rates(model, [client(draw) for _ in range(3)], batch_size=BATCH)
    assert rates.learned["rounds"] > 0
    assert torch.isfinite(rates.values).all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def check_slopes(model: nn.Module, draw: Draw) -> None:
    """A client's update of the rates is that of the reference."""
    model, x, y = copy.deepcopy(model).double(), in_double(draw(BATCH)), torch.randint(CLASSES, (BATCH,))
    rates = some_rates(model)
    rates.values = rates.values.double()
    start, reference = by_name(rates), PlainLogits(model)
    expected = reference.refine(start, [(x, y)], lr=LR)
    batch = (x, y) if isinstance(x, Tensor) else {**x, "labels": y}
    refined = by_name(ttpfl.refine_rates(model, rates, [batch], lr=LR))
    moves = {name: value - start[name] for name, value in expected.items()}
    largest = max(map(abs, moves.values()))
    assert largest > 0
    assert max(abs(refined[name] - start[name] - moves[name]) for name in moves) < DOUBLE * largest


def check_adaptation(model: nn.Module, draw: Draw) -> None:
    """A batch moves every tensor as in the reference."""
    model, x = copy.deepcopy(model).double().eval(), in_double(draw(BATCH))
    rates = some_rates(model)
    rates.values = rates.values.double()
    with torch.no_grad():
        plain = logits_of(call(model, x))
    (expected,) = PlainLogits(model).predict([x], by_name(rates))
    move = (expected - plain).abs().max()
    assert move > 1e-5
    assert (call(ttpfl.Personalizer(model, rates), x) - expected).abs().max() < DOUBLE * move


def check_rates_of_zero(model: nn.Module, draw: Draw) -> None:
    """The answers are those of the model, bit for bit."""
    x, rates = draw(BATCH), ttpfl.Rates.zeros(model)
    with torch.no_grad():
        plain = logits_of(call(model.eval(), x))
    assert torch.equal(call(ttpfl.Personalizer(model, rates), x), plain)


def check_snapshot(model: nn.Module, draw: Draw) -> None:
    """The adapted model is of the same class, and answers as the personalizer did."""
    personal = ttpfl.Personalizer(model, some_rates(model), mode="online")
    x = draw(BATCH)
    logits = call(personal, x)
    snapshot = personal.adapted_model().eval()
    assert type(snapshot) is type(model)
    with torch.no_grad():
        torch.testing.assert_close(logits_of(call(snapshot, x)), logits)


def check_file(model: nn.Module, draw: Draw, folder: Path) -> None:
    """A rates file fits the model it is for, and gives the same predictions."""
    rates = some_rates(model)
    rates.save(folder / "rates.safetensors")
    loaded = ttpfl.Rates.load(folder / "rates.safetensors", model=model)
    x = draw(BATCH)
    assert torch.equal(loaded.values, rates.values)
    assert torch.equal(call(ttpfl.Personalizer(model, loaded), x), call(ttpfl.Personalizer(model, rates), x))
    with pytest.raises(ttpfl.RatesError):
        ttpfl.Rates.load(folder / "rates.safetensors", model=nn.Linear(3, 2))


def check_all(model: nn.Module, draw: Draw, folder: Path) -> None:
    """Everything, one after the other."""
    barely_trained(model, draw)
    check_learning(model, draw)
    check_slopes(model, draw)
    check_adaptation(model, draw)
    check_rates_of_zero(model, draw)
    check_snapshot(model, draw)
    check_file(model, draw, folder)
