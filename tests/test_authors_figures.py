"""Parity with figures that the authors' implementation computed (float32, CPU)."""

import numpy as np
import pytest
import torch

import ttpfl
from tests.helpers import authors
from ttpfl.core.direction import entropy, probe
from ttpfl.core.inputs import Inputs
from ttpfl.core.twin import Twin, isolated


@pytest.fixture
def golden() -> dict[str, np.ndarray]:
    return authors.figures()


@pytest.fixture
def model() -> torch.nn.Module:
    return authors.model()


@pytest.fixture
def order(golden: dict[str, np.ndarray], model: torch.nn.Module) -> list[int]:
    """Where our modules stand in the authors' vectors."""
    theirs = list(golden["modules"])
    names = ttpfl.Rates.zeros(model).names
    assert sorted(theirs) == sorted(names)
    return [theirs.index(name) for name in names]


def rates_of(model: torch.nn.Module, values: np.ndarray) -> ttpfl.Rates:
    rates = ttpfl.Rates.zeros(model)
    rates.values = torch.from_numpy(values.copy())
    return rates


def close(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> bool:
    return bool(np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max())


def same_change(ours: np.ndarray, theirs: np.ndarray) -> bool:
    each = np.abs(ours - theirs) <= 0.01 * np.abs(theirs) + 3e-9
    return close(ours, theirs, 1e-4) and bool(each.all())


def test_directions(golden: dict, model: torch.nn.Module, order: list[int]) -> None:
    rates = ttpfl.Rates.zeros(model)
    x = authors.batches(0)[0][0]
    with isolated():
        direction = probe(Twin(model, rates.modules), Inputs((x,), {}), entropy).direction
    h = [direction[name].whole().double() for name in rates.names]
    assert close(np.array([v.norm().item() for v in h]), golden["h_norm"][order], 1e-5)
    assert close(np.array([v.sum().item() for v in h]), golden["h_sum"][order], 1e-5)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_one_clients_turn(
    golden: dict, model: torch.nn.Module, order: list[int], index: int, cached: bool
) -> None:
    start = golden["alpha0"][order]
    cache = ttpfl.DirectionCache(2**28) if cached else None
    for _ in range(2):  # the second time from the cache
        rates = ttpfl.refine_rates(
            model, rates_of(model, start), authors.batches(index), lr=float(golden["lr"]), cache=cache
        )
        assert same_change(rates.values.numpy() - start, golden["alpha_local"][index][order] - start)


def test_a_round(golden: dict, model: torch.nn.Module, order: list[int]) -> None:
    start = golden["alpha0"][order]
    clients = [authors.client(number) for number in range(authors.CLIENTS)]
    rates = ttpfl.learn_rates(
        model,
        clients,
        rounds=1,
        cohort=3,
        lr=float(golden["lr"]),
        batch_size=20,
        rates=rates_of(model, start),
    )
    assert same_change(rates.values.numpy() - start, golden["alpha_global"][order] - start)
    assert same_change(rates.values.numpy() - start, golden["alpha_round"][order] - start)


@pytest.mark.parametrize("mode", ["batch", "online"])
@pytest.mark.parametrize("index", [0, 1])
def test_predictions(golden: dict, model: torch.nn.Module, order: list[int], mode: str, index: int) -> None:
    adapter = ttpfl.Personalizer(model, rates_of(model, golden["alpha_test"][order]), mode)
    logits = torch.cat([adapter(x) for x, _ in authors.batches(index)])
    assert close(logits.numpy(), golden[f"atp_{mode}{index}"], 1e-5)


def test_plain_predictions(golden: dict, model: torch.nn.Module) -> None:
    adapter = ttpfl.Personalizer(model, ttpfl.Rates.zeros(model))
    logits = torch.cat([adapter(x) for x, _ in authors.batches(0)])
    assert close(logits.numpy(), golden["plain0"], 1e-5)
