"""A stream that claims to be i.i.d. is in random order, however the client's data is stored."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from ttpfl import data
from ttpfl.data.images import Images
from ttpfl.evaluation import Evaluator

CLASSES, EACH = 4, 30
SORTED = np.repeat(np.arange(CLASSES), EACH)
"""Labels of a client that is stored class by class."""


def pictures(labels: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Pictures whose colour tells their number, so that none is like another."""
    x = np.zeros((len(labels), 8, 8, 3), np.uint8)
    x[:, :, :, 0], x[:, :, :, 1] = labels[:, None, None], (np.arange(len(labels)) % 251)[:, None, None]
    return x


def folder(path: Path) -> data.Federated:
    for place in ("source/north", "target/south"):
        for number, (x, label) in enumerate(zip(pictures(SORTED), SORTED, strict=True)):
            file = path / place / f"class {label}" / f"{number:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x).save(file)
    return data.federate("folder", data_dir=path)


def arrays(path: Path) -> data.Federated:
    for place in ("source/north", "target/south"):
        file = path / f"{place}.npz"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, x=pictures(SORTED), y=SORTED)
    return data.federate("arrays", data_dir=path)


def huggingface(path: Path) -> data.Federated:
    rows = {
        "image": np.concatenate([pictures(SORTED)] * 2),
        "label": np.concatenate([SORTED] * 2).tolist(),
        "client": ["north"] * len(SORTED) + ["south"] * len(SORTED),
    }
    return data.federate(data.from_huggingface(rows, target_clients=["south"]), data_dir=path)


def divided(path: Path, **choices: Any) -> data.Federated:
    """Clients that the library makes, out of images that are stored class by class."""
    labels = np.repeat(np.arange(10), 400)
    images = Images(
        np.zeros((4000, 28, 28, 3), np.uint8),
        labels,
        np.zeros(4000, np.int64),
        data.dataset_info("fashion-mnist"),
    )
    choices = {"shift": "label", "source_clients": 12, "target_clients": 4, **choices}
    return data.federate(images, data_dir=path, **choices)


def step(path: Path) -> data.Federated:
    return divided(path)


def dirichlet(path: Path) -> data.Federated:
    return divided(path, partition="dirichlet")


def stratified(path: Path) -> data.Federated:
    return divided(path, partition="stratified")


def without_labels(path: Path) -> data.Federated:
    return divided(path, partition="iid")


def with_replacement(path: Path) -> data.Federated:
    return divided(path, replacement=True)


def by_domain(path: Path) -> data.Federated:
    return data.federate("digits", data_dir=path, shift="domain", held_out="uci")


def runs(labels: NDArray[np.int64]) -> int:
    """How often a sample is of the class of the one before it."""
    return int((np.diff(labels) == 0).sum())


@pytest.mark.parametrize(
    "population",
    [folder, arrays, huggingface, step, dirichlet, stratified, without_labels, with_replacement, by_domain],
)
def test_iid_streams_are_random_for_every_kind_of_client(population: Any, tmp_path: Path) -> None:
    clients, answers, _ = population(tmp_path)
    evaluator = Evaluator(clients.target, answers)
    assert len(evaluator.clients()) > 0
    for number in evaluator.clients():
        _, labels, _ = evaluator.stream(number)
        random = np.random.default_rng(number)
        usual = [runs(random.permutation(labels)) for _ in range(2000)]
        assert min(usual) <= runs(labels) <= max(usual)


@pytest.mark.parametrize("population", [folder, arrays, huggingface])
def test_own_clients_are_shuffled_by_the_seed_and_labels_stay_with_their_samples(
    population: Any, tmp_path: Path
) -> None:
    clients, answers, _ = population(tmp_path)

    def stream(order: str, seed: int = 0) -> tuple[list[int], list[int]]:
        batches, labels, ids = Evaluator(clients.target, answers, 7, order, seed).stream(0)
        red = np.concatenate([batch[:, 0, 0, 0].numpy() for batch in batches])
        assert np.array_equal(np.unique(red, return_inverse=True)[1], labels)
        return labels.tolist(), ids.tolist()

    assert stream("recorded") == (SORTED.tolist(), list(range(len(SORTED))))
    assert stream("iid") == stream("iid")
    assert stream("iid", seed=1) != stream("iid")
    assert sorted(stream("iid")[1]) == list(range(len(SORTED)))


def test_clients_that_are_random_already_keep_their_order(tmp_path: Path) -> None:
    clients, answers, _ = step(tmp_path)
    for seed in (0, 1):
        _, _, ids = Evaluator(clients.target, answers, seed=seed).stream(1)
        assert np.array_equal(ids, clients.target[1].ids)
