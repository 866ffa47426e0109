"""Clients: what they have, what they do not have, and how images come out of them."""

import functools
import gc
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ttpfl
from tests.helpers.real_data import needed
from tests.helpers.small_digits import federated, few_digits
from ttpfl.data import Images, Population, TargetClient, federate
from ttpfl.data.client_arrays import ClientArrays, ClientData, client_arrays
from ttpfl.data.clients import Clients
from ttpfl.data.corruption_names import SOURCE_CORRUPTIONS, TARGET_CORRUPTIONS
from ttpfl.data.division import Dealt
from ttpfl.data.federate import Federated
from ttpfl.data.pixels import as_tensor
from ttpfl.data.plan import Part, Plan, check_separate, plan, split
from ttpfl.data.population_config import PopulationConfig
from ttpfl.errors import DataError


def all_ids(population: Population) -> list[np.ndarray]:
    source = [np.concatenate([c.train_ids, c.validation_ids]) for c in population.source]
    return source + [client.ids for client in population.target]


def class_counts(made: Federated) -> np.ndarray:
    return np.array([row[4] for row in made.manifest.source + made.manifest.target])


def blank(labels: np.ndarray, name: str, domain: np.ndarray | None = None) -> Images:
    """Labels of a known data set, with images of one pixel."""
    info = replace(ttpfl.data.dataset_info(name), image_size=(1, 1))
    x = np.zeros((len(labels), 1, 1, 3), np.uint8)
    return Images(x, labels, np.zeros_like(labels) if domain is None else domain, info)


# The paper's populations


@pytest.fixture(scope="module")
def cifar10(real_data: Path) -> Images:
    needed(real_data / "cifar-10-batches-bin")
    return ttpfl.data.load("cifar10", real_data)


@pytest.mark.parametrize("shift", ["label", "hybrid"])
def test_cifar10_is_divided_as_in_the_paper(cifar10: Images, tmp_path: Path, shift: str) -> None:
    made = federate(cifar10, data_dir=tmp_path, shift=shift, seed=1)
    population, target_labels, _ = made
    assert (np.sort(class_counts(made)) == [5] * 8 + [80] * 2).all()
    assert [len(population.source), len(population.target)] == [240, 60]
    assert {(len(c.train_ids), len(c.validation_ids)) for c in population.source} == {(160, 40)}
    assert {len(c) for c in population.target} == {200}
    assert sorted(np.concatenate(all_ids(population)).tolist()) == list(range(60_000))
    assert ((class_counts(made) == 80).sum(0) == 60).all()
    for client in population.source[::50]:
        assert np.array_equal(client.train_labels, cifar10.y[client.train_ids])
        assert np.array_equal(client.validation().y, cifar10.y[client.validation_ids])
    for target in population.target[::20]:
        assert np.array_equal(target_labels[target.id], cifar10.y[target.ids])
    corruptions = [client.corruption for client in population.source]
    if shift == "label":
        assert set(corruptions) == {None}
        x = population.target[3].take(population.target[3].ids)
        assert np.array_equal(x, cifar10.x[population.target[3].ids])
    else:
        assert {c.name for c in corruptions if c} == set(SOURCE_CORRUPTIONS)
        assert {c.severity for c in corruptions if c} == {1, 2, 3, 4, 5}
        new = [client.corruption for client in population.target]
        assert {c.name for c in new if c} == set(TARGET_CORRUPTIONS)
        assert {c.severity for c in new if c} == {1, 2, 3, 4, 5}


def test_pairs_of_the_authors(tmp_path: Path) -> None:
    images = blank(np.arange(60_000) % 10, "cifar10")
    made = federate(images, data_dir=tmp_path, shift="label", repeat_majors=True)
    rows = [tuple(row) for row in np.sort(class_counts(made)).tolist()]
    assert rows.count((5,) * 8 + (80, 80)) == 270
    assert rows.count((5,) * 9 + (155,)) == 30


def test_cifar100_is_divided_as_in_the_paper(tmp_path: Path) -> None:
    images = blank(np.random.default_rng(0).permutation(np.arange(60_000) % 100), "cifar100")
    made = federate(images, data_dir=tmp_path, shift="label")
    assert (np.sort(class_counts(made)) == [1] * 98 + [51] * 2).all()
    assert len(made.population.source) == 240
    assert ((class_counts(made) == 51).sum(0) == 6).all()


def check_leave_one_out(images: Images, held_out: str, tmp_path: Path, clients: int) -> None:
    """Ratio 16 in every domain and class, up to whole numbers; every image in one client."""
    made = federate(images, data_dir=tmp_path, shift="domain", held_out=held_out)
    domains = images.info.domains
    population = made.population
    assert [c.domain for c in population.target] == [held_out] * clients
    others = [name for name in domains if name != held_out]
    assert [c.domain for c in population.source] == [name for name in others for _ in range(clients)]
    own = all_ids(population)
    assert sorted(np.concatenate(own).tolist()) == list(range(len(images)))
    counts = class_counts(made)
    for client, ids in zip([*population.source, *population.target], own, strict=True):
        assert (images.domain[ids] == domains.index(client.domain)).all()
    for number, domain in enumerate([*others, held_out]):
        there = counts[number * clients : (number + 1) * clients]
        total = np.bincount(images.y[images.domain == domains.index(domain)])
        assert (there.sum(0) == total).all()
        is_major = there > 4 * there.min(0)
        assert (is_major.sum(1) == 2).all()
        weights = np.where(is_major, 16, 1)
        assert np.abs(there - weights / weights.sum(0) * total).max() < 1


def test_digits5_one_domain_left_out(real_data: Path, tmp_path: Path) -> None:
    root, info = needed(real_data / "digits5"), ttpfl.data.dataset_info("digits5")
    labels = [np.load(root / f"{name}.npz")["y"].astype(np.int64) for name in info.domains]
    domain = np.repeat(np.arange(5), [len(y) for y in labels])
    for held_out in info.domains:
        check_leave_one_out(blank(np.concatenate(labels), "digits5", domain), held_out, tmp_path, clients=10)


def test_pacs_one_domain_left_out(real_data: Path, tmp_path: Path) -> None:
    root, info = needed(real_data / "PACS"), ttpfl.data.dataset_info("pacs")
    kinds = [(c, d) for d in range(4) for c in range(7)]
    counts = [len(list((root / info.domains[d] / info.classes[c]).iterdir())) for c, d in kinds]
    y, domain = np.repeat(np.array(kinds), counts, axis=0).T.copy()
    assert len(y) == 9991
    for held_out in info.domains:
        check_leave_one_out(blank(y, "pacs", domain), held_out, tmp_path, clients=7)


def test_a_domain_has_the_same_clients_whichever_is_held_out(tmp_path: Path) -> None:
    hashes = []
    for held_out in ("uci", "blended"):
        manifest = federated(data_dir=tmp_path, shift="domain", held_out=held_out, clients_per_domain=2)[2]
        hashes.append({row[6] for row in manifest.source + manifest.target})
    assert hashes[0] == hashes[1]


def test_what_domains_need() -> None:
    with pytest.raises(DataError, match=r"needs held_out=, one of: mnist, uci, rendered, blended"):
        federated(shift="domain")
    with pytest.raises(DataError, match="unknown domain 'uic'; did you mean 'uci'"):
        federated(shift="domain", held_out="uic")
    with pytest.raises(DataError, match="cifar10 has only one domain"):
        federate(blank(np.arange(100) % 10, "cifar10"), shift="domain", held_out="cifar10")
    images = few_digits()
    some = (images.y != 3) | (images.domain != 2)
    gap = Images(images.x[some], images.y[some], images.domain[some], images.info)
    with pytest.raises(DataError, match="without any of class 3 \\(0 available\\)") as error:
        federate(gap, shift="domain", held_out="uci", clients_per_domain=2, ratio=2)
    assert error.value.__notes__ == ["in domain rendered"]
    federate(gap, shift="domain", held_out="uci", clients_per_domain=2, partition="dirichlet", alpha=9.0)


# Shifts and choices


@pytest.mark.parametrize("shift", ["none", "feature", "label", "hybrid"])
def test_shifts_are_in_labels_or_features_or_both(tmp_path: Path, shift: str) -> None:
    made = federated(data_dir=tmp_path, shift=shift)
    corruptions = {client.corruption for client in [*made.population.source, *made.population.target]}
    assert (corruptions == {None}) == (shift in ("none", "label"))
    uneven = (np.sort(class_counts(made))[:, -2] >= 12).all()
    assert uneven == (shift in ("label", "hybrid"))


def test_severities_and_corruptions_are_drawn_evenly(tmp_path: Path) -> None:
    config = PopulationConfig(
        shift="feature", replacement=True, samples=2, source_clients=6000, target_clients=4000
    )
    made = plan(few_digits(), config)
    drawn = [made.corruption(client) for client in range(len(made))]
    for part, names, limit in (
        (drawn[:6000], SOURCE_CORRUPTIONS, 124.8),  # chi-square, 74 and 19 degrees of freedom: 0.0002
        (drawn[6000:], TARGET_CORRUPTIONS, 49.0),
    ):
        kinds = [(name, severity) for name in names for severity in range(1, 6)]
        counts = np.array([part.count(kind) for kind in kinds])  # type: ignore[arg-type]
        each = len(part) / len(kinds)
        assert counts.sum() == len(part)
        assert ((counts - each) ** 2 / each).sum() < limit


def test_in_distribution_targets_have_the_corruptions_of_sources() -> None:
    config = PopulationConfig(
        shift="feature",
        replacement=True,
        samples=2,
        source_clients=10,
        target_clients=400,
        in_distribution=True,
    )
    made = plan(few_digits(), config)
    drawn = [made.corruption(client) for client in range(10, 410)]
    assert {found.name for found in drawn if found} == set(SOURCE_CORRUPTIONS)


@pytest.mark.parametrize("partition", ["step", "dirichlet", "stratified", "iid"])
@pytest.mark.parametrize("skew", [0.0, 0.3])
def test_source_and_target_are_apart_with_replacement(tmp_path: Path, partition: str, skew: float) -> None:
    population, target_labels, _ = federated(
        data_dir=tmp_path,
        shift="label",
        partition=partition,
        alpha=100.0,
        replacement=True,
        samples=20,
        quantity_skew=skew,
        source_clients=90,
        target_clients=60,
    )
    own = all_ids(population)
    assert all(len(np.unique(ids)) == len(ids) for ids in own)
    assert {len(ids) == 20 for ids in own} == ({True} if skew == 0 else {True, False})
    source, target = set(np.concatenate(own[:90]).tolist()), set(np.concatenate(own[90:]).tolist())
    assert not source & target
    assert sum(map(len, own[:90])) > len(source)  # with replacement it is
    assert np.array_equal(target_labels["target-7"], few_digits().y[population.target[7].ids])


def test_separation_is_checked() -> None:
    apart = Plan(PopulationConfig(), (Part("a", Dealt(np.arange(4), np.array([2, 4]))),), sources=1)
    check_separate(apart)
    both = (*apart.parts, Part("b", Dealt(np.array([9, 3]), np.array([2]))))
    with pytest.raises(DataError, match="image 3 is in more than one client"):
        check_separate(Plan(PopulationConfig(), both, sources=1))


def test_seeds_give_different_populations(tmp_path: Path) -> None:
    digests = {federated(data_dir=tmp_path, seed=seed).manifest.digest for seed in (0, 1, 2**70)}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("count", "validation", "expected"),
    [(200, 0.2, 40), (2, 0.2, 1), (2, 0.99, 1), (3, 0.01, 1), (10, 0.5, 5), (7, 0.3, 2)],
)
def test_split(count: int, validation: float, expected: int) -> None:
    train, held_back = split(np.arange(count), validation)
    assert len(held_back) == expected
    assert [*train, *held_back] == list(range(count))


def test_smallest_populations() -> None:
    images = few_digits()
    made = federate(images, shift="label", source_clients=1, target_clients=1, ratio=2.0)
    assert class_counts(made).sum() == len(images)
    one = Images(
        images.x,
        np.zeros_like(images.y),
        np.zeros_like(images.y),
        replace(images.info, classes=("a",), domains=("b",)),
    )
    made = federate(one, shift="label", majors=1, source_clients=3, target_clients=1)
    assert class_counts(made).tolist() == [[120]] * 4
    assert made.population.target[0].domain == "b"
    with pytest.raises(DataError, match="majors is 2, but there are only 1 classes"):
        federate(one, shift="label", source_clients=3, target_clients=1)


# Labels of target clients


def referents(thing: object) -> list[object]:
    """What can be reached from a thing by its attributes, its contents, or what it closes over.

    Not the modules that its functions were written in, in which everything can be found.
    """
    if isinstance(thing, (type, types.ModuleType)):
        return []
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [*cells, thing.__defaults__, thing.__kwdefaults__, thing.__dict__]
    if isinstance(thing, np.ndarray):
        return [thing.base]
    found: list[object] = gc.get_referents(thing)
    if isinstance(thing, functools.partial):
        found += [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.MethodType):
        found.append(thing.__self__)
    return found


def reachable_arrays(start: object) -> Iterator[np.ndarray]:
    seen: dict[int, object] = {}
    waiting = [start]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if isinstance(thing, np.ndarray):
            yield np.asarray(thing)
        elif isinstance(thing, torch.Tensor):
            yield thing.numpy()
        waiting += referents(thing)


def tells(array: np.ndarray, ids: np.ndarray, labels: np.ndarray) -> bool:
    """Whether labels stand in the array: as they are, at the images' places, or anywhere in a row."""
    if array.ndim != 1 or array.dtype == object:
        return False
    if len(array) > ids.max() and np.array_equal(array[ids], labels):
        return True
    if len(array) < len(labels):
        return False
    rows = np.lib.stride_tricks.sliding_window_view(array, len(labels))
    return bool((rows == labels).all(1).any())


@pytest.mark.parametrize(
    "choices",
    [
        {"shift": "hybrid"},
        {"shift": "hybrid", "prepare": True, "workers": 1},
        {"shift": "label", "replacement": True, "samples": 20},
        {"shift": "domain", "held_out": "uci", "clients_per_domain": 2},
    ],
)
def test_labels_of_a_target_client_cannot_be_reached_from_it(tmp_path: Path, choices: dict[str, Any]) -> None:
    population, target_labels, _ = federated(data_dir=tmp_path, **choices)
    for client in population.target:
        labels = target_labels[client.id].numpy()
        stream = client.stream(8)
        next(stream)
        assert not any(tells(array, client.ids, labels) for array in reachable_arrays(client))
        assert not any(tells(array, client.ids, labels) for array in reachable_arrays(stream))
        assert sum(1 for _ in reachable_arrays(client)) >= 2  # the ids and the pixels, at least
    # The same search finds labels where they are.
    assert any(tells(array, client.ids, labels) for array in reachable_arrays(target_labels))
    source = population.source[0]
    found = reachable_arrays(source)
    assert any(tells(array, source.train_ids, source.train_labels) for array in found)


def test_labels_of_own_target_clients_cannot_be_reached_either() -> None:
    made = federate(own())
    client = made.population.target[0]
    labels = made.target_labels[client.id].numpy()
    assert not any(tells(array, client.ids, labels) for array in reachable_arrays(client))


def test_target_clients_have_no_labels_by_name() -> None:
    public = {name for name in dir(TargetClient) if not name.startswith("_")}
    assert public == {"facts", "shuffled", "stream", "tensor"}
    fields = {"id", "domain", "corruption", "info", "take", "ids", "shuffled"}
    assert set(TargetClient.__dataclass_fields__) == fields


def test_answers_are_copies_by_client() -> None:
    _, target_labels, _ = federated(shift="label")
    assert list(target_labels) == [f"target-{number}" for number in range(4)]
    assert len(target_labels) == 4
    assert target_labels["target-1"].dtype == torch.int64
    before = target_labels["target-1"].clone()
    target_labels["target-1"].zero_()
    assert torch.equal(target_labels["target-1"], before)
    with pytest.raises(KeyError):
        target_labels["source-1"]


# Images out of clients


def test_normalisation_is_that_of_the_formula() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
    mean, std = (0.1, 0.5, 0.9), (0.2, 0.3, 1.5)
    found = as_tensor(pixels, mean, std)
    assert found.dtype == torch.float32
    assert found.shape == (3, 3, 5, 4)
    assert found.is_contiguous(memory_format=torch.channels_last)
    for n, h, w, c in np.ndindex(*pixels.shape):
        slow = (int(pixels[n, h, w, c]) / 255 - mean[c]) / std[c]
        assert abs(found[n, c, h, w].item() - slow) < 1e-5
    assert as_tensor(pixels[:0], mean, std).shape == (0, 3, 5, 4)
    assert torch.equal(as_tensor(pixels[:, ::2, 1:], mean, std), found[:, :, ::2, 1:])


def test_stream_is_all_images_in_their_order() -> None:
    population, _, _ = federated()
    client = population.target[2]
    batches = list(client.stream(20))
    assert [len(batch) for batch in batches] == [20, 20, 8]
    assert torch.equal(torch.cat(batches), client.tensor(client.ids))
    assert torch.equal(torch.cat(list(client.stream(1))), torch.cat(batches))
    assert [len(batch) for batch in client.stream(10**6)] == [48]
    with pytest.raises(DataError, match="batch_size must be a positive integer, got 0"):
        next(client.stream(0))


def test_clean_images_are_those_of_the_data_set() -> None:
    population, _, _ = federated(shift="label")
    client = population.source[1]
    x, y = client.train()
    expected = (few_digits().x[client.train_ids] / 255 - 0.5) / 0.5
    np.testing.assert_allclose(x.numpy().transpose(0, 2, 3, 1), expected, atol=1e-6)
    assert y.tolist() == few_digits().y[client.train_ids].tolist()
    x.zero_()  # is the user's own
    assert client.train().x.abs().sum() > 0


def test_clients_are_made_when_asked_for() -> None:
    made: list[int] = []
    client = federated(shift="label").population.target[0]

    def make(number: int) -> TargetClient:
        made.append(number)
        return replace(client, id=str(number))

    clients = Clients(10**9, make)
    assert made == []
    assert clients[-1].id == "999999999"
    assert clients[np.int64(3)].id == "3"
    assert [client.id for client in clients[5:2:-2]] == ["5", "3"]
    assert made == [10**9 - 1, 3, 5, 3]
    with pytest.raises(IndexError):
        clients[10**9]
    assert [client.id for client in Clients(3, make)] == ["0", "1", "2"]


def test_populations_of_any_number_of_clients_keep_nothing_per_client() -> None:
    made = plan(
        few_digits(),
        PopulationConfig(
            shift="label",
            ratio=4.0,
            replacement=True,
            samples=20,
            source_clients=10**12,
            target_clients=10**12,
        ),
    )
    assert len(made.ids(10**12 - 1)) == 20
    assert made.name(10**12 + 5) == "target-5"
    assert sum(array.nbytes for array in reachable_arrays(made)) < 10_000


# The user's own clients


def own() -> ClientArrays:
    images = few_digits()
    parts = np.array_split(np.random.default_rng(0).permutation(len(images)), 5)
    clients = [ClientData(images.x[rows], images.y[rows]) for rows in parts]
    source = dict(zip(("north", "west"), clients[:2], strict=True))
    target = {"south": clients[2], "east": clients[3]._replace(y=None)}
    return client_arrays(source, target, ttpfl.data.dataset_info("arrays"), tuple("0123456789"))


def test_own_clients(tmp_path: Path) -> None:
    data = own()
    path = tmp_path / "manifest.json"
    population, target_labels, manifest = federate(
        data, data_dir=tmp_path, manifest=path, validation=0.25, seed=2
    )
    assert [client.id for client in population.source] == ["north", "west"]
    assert [client.id for client in population.target] == ["south", "east"]
    for client in population.source:
        x, y = data.source[client.id]
        assert y is not None
        assert (len(client.train_ids), len(client.validation_ids)) == (72, 24)
        order = np.concatenate([client.train_ids, client.validation_ids])
        assert sorted(order.tolist()) == list(range(96))
        assert order.tolist() != list(range(96))  # shuffled: files often come class by class
        assert np.array_equal(client.take(order), x[order])
        assert np.array_equal(np.concatenate([client.train_labels, client.validation_labels]), y[order])
        assert client.corruption is None
    for target in population.target:
        assert np.array_equal(target.take(target.ids), data.target[target.id].x)  # in the order they came
    assert list(target_labels) == ["south"]
    assert np.array_equal(target_labels["south"], data.target["south"].y)  # type: ignore[arg-type]
    assert target_labels.of(population.target[1]) is None
    assert [row[4] for row in manifest.target][1] == []
    again = federate(data, data_dir=tmp_path, manifest=path, validation=0.25, seed=2)
    assert again.manifest == manifest
    with pytest.raises(DataError, match="seed of the config was 2, it is 3"):
        federate(data, data_dir=tmp_path, manifest=path, validation=0.25, seed=3)


def test_own_clients_in_files_are_made_again_from_their_manifest(tmp_path: Path) -> None:
    data = own()
    for part, clients in (("source", data.source), ("target", data.target)):
        (tmp_path / part).mkdir()
        for name, (x, y) in clients.items():
            np.savez(tmp_path / part / f"{name}.npz", x=x, **({} if y is None else {"y": y}))
    path = tmp_path / "manifest.json"
    made = federate("arrays", data_dir=tmp_path, manifest=path)
    again = ttpfl.data.load_population(path, data_dir=tmp_path)
    assert again.manifest == made.manifest
    np.savez(tmp_path / "target" / "east.npz", x=data.target["east"].x[::-1])
    with pytest.raises(DataError, match="sha256 of the data was"):
        ttpfl.data.load_population(path, data_dir=tmp_path)


def test_what_own_clients_need() -> None:
    data = own()
    with pytest.raises(DataError, match="unknown option 'shift' of your own clients"):
        federate(data, shift="label")
    with pytest.raises(DataError, match="validation must be a number above 0 and below 1, got 2"):
        federate(data, validation=2)
    x, y = data.source["west"]
    assert y is not None
    lonely = ClientArrays({**data.source, "hut": ClientData(x[:1], y[:1])}, data.target, data.info)
    with pytest.raises(
        DataError, match="source client 'hut' has 1 sample, but needs at least one for training"
    ):
        federate(lonely)
    no_targets = federate(ClientArrays(data.source, {}, data.info))
    assert list(no_targets.population.target) == []
    assert len(no_targets.target_labels) == 0


def test_the_old_name_of_target_labels_warns() -> None:
    made = federated(shift="label")
    with pytest.warns(DeprecationWarning, match="answers is now target_labels"):
        assert made.answers is made.target_labels
