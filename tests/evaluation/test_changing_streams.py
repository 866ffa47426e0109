"""Streams in which clients follow each other, against slow loops and closed forms."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers import small_population
from ttpfl import data
from ttpfl.errors import BatchError
from ttpfl.evaluation import Evaluator, compare
from ttpfl.evaluation.streams import ARRANGEMENTS, VISITS, arranged
from ttpfl.methods import Adapter, Method, SourceInfo, make

SIZES = [12, 30, 7, 21]
owners = np.repeat(np.arange(len(SIZES)), SIZES)


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_every_sample_comes_once_and_the_seed_decides(name: str) -> None:
    order = arranged(name, SIZES, (1,))
    assert sorted(order.tolist()) == list(range(sum(SIZES)))
    assert np.array_equal(order, arranged(name, SIZES, (1,)))
    assert any(not np.array_equal(order, arranged(name, SIZES, (seed,))) for seed in (2, 3))


@pytest.mark.parametrize(("name", "visits"), [("continual", 1), ("recurring", VISITS)])
def test_clients_come_one_after_another(name: str, visits: int) -> None:
    order = arranged(name, SIZES, (1,))
    samples = [list(np.flatnonzero(owners == client)) for client in range(len(SIZES))]
    sequence = list(dict.fromkeys(owners[order].tolist()))
    parts = [np.array_split(samples[client], visits) for client in range(len(SIZES))]
    counts = [[len(parts[client][visit]) for client in sequence] for visit in range(visits)]
    runs = np.diff(np.flatnonzero(np.diff(owners[order], prepend=-1, append=-1))).reshape(visits, -1)
    assert np.abs(runs - counts).max() <= 1, "each visit has as many samples, up to rounding"
    for client in range(len(SIZES)):
        assert [place for place in order if owners[place] == client] == samples[client]
    assert owners[order][np.flatnonzero(np.diff(owners[order], prepend=-1))].tolist() == sequence * visits


def test_a_gradual_stream_has_a_proportion_that_grows_evenly() -> None:
    size, clients = 2000, 3
    owner = arranged("gradual", [size] * clients, (0,)) // size
    sequence = list(dict.fromkeys(owner.tolist()))
    for before, (old, new) in enumerate(pairwise(sequence)):
        fade = owner[size * before + size // 2 :][:size]  # from the middle of one to that of the next
        assert set(fade.tolist()) == {old, new}
        shares = (fade.reshape(10, -1) == new).mean(1)
        np.testing.assert_allclose(shares, (np.arange(10) + 0.5) / 10, atol=0.01)


def test_mixed_clients_are_in_every_batch() -> None:
    owner = arranged("mixed-clients", [200] * 4, (0,)) // 200
    counts = np.array([np.bincount(batch, minlength=4) for batch in owner.reshape(-1, 50)])
    expected, variance = 50 / 4, 50 * 1 / 4 * 3 / 4
    assert (np.abs(counts - expected) < 4 * variance**0.5).all()


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> data.Federated:
    return small_population.population(small_population.made_images(), tmp_path_factory.mktemp("data"))


@dataclass(frozen=True)
class Counter(Method):
    """Predicts the number of the batch, to see which batches share an adapter."""

    name = "counter"

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        return _Counter(model)


class _Counter(Adapter):
    batches = 0

    def adapt(self, batch: Any) -> Tensor:
        self.batches += 1
        return 5 * nn.functional.one_hot(torch.full((len(batch),), (self.batches - 1) % 10), 10).float()

    def reset(self) -> None:
        self.batches = 0


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_one_adapter_sees_the_whole_stream_and_every_client_gets_its_part(
    name: str, federated: data.Federated
) -> None:
    population, answers, _ = federated
    model, evaluator = small_population.network(), Evaluator(population.target, answers, 7, name, seed=4)
    found = compare(model, evaluator, [(Counter(), SourceInfo())], workers=0)
    labels = [(client.id, int(label)) for client in population.target for label in answers[client.id]]
    right: dict[str, list[bool]] = {client.id: [] for client in population.target}
    for place, sample in enumerate(arranged(name, list(map(len, population.target)), (4,))):
        client, label = labels[sample]
        right[client].append(place // 7 % 10 == label)
    assert found.of("counter") == pytest.approx([np.mean(hits) for hits in right.values()])
    assert len(set(found.of("counter", "time"))) == 1, "the clients share a stream"


def test_an_interrupted_stream_is_computed_again(federated: data.Federated, tmp_path: Path) -> None:
    population, answers, _ = federated
    model, evaluator = small_population.network(), Evaluator(population.target, answers, 32, "continual")
    methods = [(make("none"), SourceInfo()), (make("em-online"), SourceInfo())]
    whole = compare(model, evaluator, methods, workers=0, run_dir=tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[: 2 + len(population.target)]))
    done: list[tuple[int, int]] = []
    again = compare(
        model, evaluator, methods, workers=2, run_dir=tmp_path, progress=lambda *n: done.append(n)
    )
    assert done == [(2, 2)]
    assert all(again.of(name, "loss") == whole.of(name, "loss") for name in ("none", "em-online"))


def test_an_error_names_the_stream(federated: data.Federated) -> None:
    population, answers, _ = federated
    evaluator = Evaluator(population.target, answers, order="gradual")
    model = small_population.network()
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    with pytest.raises(BatchError, match="none fails at the gradual stream of all clients: "):
        compare(model, evaluator, [(make("none"), SourceInfo())], workers=0)
