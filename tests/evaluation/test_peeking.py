"""A method that looks for the target clients' labels in all that it can get hold of does not find them.

What it is handed is followed wherever it leads: attributes, containers, closures, default arguments, bound
methods, generators, weak references, the memory behind a view. What belongs to the whole process, such as
modules and the stack of calls, is no secret to any code that runs in it, and is left out.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers import small_population
from ttpfl import Rates, data
from ttpfl.data.clients import TargetLabels
from ttpfl.data.images import Images
from ttpfl.evaluation import Evaluator, compare, gather
from ttpfl.methods import Adapter, Method, SourceInfo, make
from ttpfl.methods.base import Labelled, Summary


@pytest.fixture(scope="module")
def images() -> Images:
    return small_population.made_images()


@pytest.fixture(scope="module")
def federated(images: Images, tmp_path_factory: pytest.TempPathFactory) -> data.Federated:
    return small_population.population(images, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return small_population.network()


def followed(item: Any) -> list[Any]:
    """What an object leads to."""
    if isinstance(item, FunctionType):  # not its globals
        return [item.__closure__, item.__defaults__, item.__kwdefaults__, item.__dict__]
    further = gc.get_referents(item)
    if isinstance(item, weakref.ref):
        further.append(item())
    if isinstance(item, np.ndarray):
        further.append(item.base)
    if isinstance(item, Tensor):
        further.append(item._base)
    return further


def reachable(root: Any) -> Iterator[Any]:
    seen: dict[int, Any] = {}  # which keeps them: a new object could have the number of an old one
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (type, ModuleType)):
            continue
        seen[id(item)] = item
        yield item
        waiting += followed(item)


def memory(item: Any) -> tuple[int, int]:
    """From where to where the numbers lie."""
    if isinstance(item, Tensor):
        storage = item.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    begin: int = item.__array_interface__["data"][0]
    return begin, begin + item.nbytes


def tells(item: Any, federated: data.Federated, images: Images) -> bool:
    """Whether this object is, or holds, labels of target clients."""
    if isinstance(item, (TargetLabels, Evaluator)):
        return True
    if isinstance(item, (list, tuple)) and item and all(type(value) is int for value in item):
        item = np.array(item)
    if not isinstance(item, (Tensor, np.ndarray)):
        return False
    (begin, end), (first, last) = memory(item), memory(images.y)
    if begin < last and first < end:
        return True
    values = np.ravel(item.detach().numpy() if isinstance(item, Tensor) else item)
    return any(_begins_or_ends_with(values, labels.numpy()) for labels in federated.target_labels.values())


def _begins_or_ends_with(values: Any, secret: Any) -> bool:
    """In whatever order."""
    size = len(secret)
    return len(values) >= size and any(
        np.array_equal(np.sort(part), np.sort(secret)) for part in (values[:size], values[-size:])
    )


HANDED: list[Any] = []


@dataclass(frozen=True)
class Peeker(Method):
    """Notes all that it is handed, on the source side and at a target client."""

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        HANDED.extend([model, batches])
        for x, y in batches:
            HANDED.extend([x, y, list(reachable(batches))])  # also while it is under way
        return {"count": torch.ones(10, 10)}

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        HANDED.extend([model, source_info])
        return _Peeker(model)


class _Peeker(Adapter):
    def adapt(self, batch: Any) -> Tensor:
        HANDED.extend([self, batch])
        return torch.zeros(len(batch), 10)

    def reset(self) -> None:
        pass


def found(root: Any, federated: data.Federated, images: Images) -> list[Any]:
    return [item for item in reachable(root) if tells(item, federated, images)]


@pytest.mark.parametrize("order", ["iid", "label-sorted", "continual"])
def test_a_method_that_peeks_finds_nothing(
    federated: data.Federated, images: Images, model: nn.Module, order: str
) -> None:
    population, answers, _ = federated
    HANDED.clear()
    peeker = Peeker()
    summary = gather(peeker, model, population.source, 20, workers=0)
    bbse = gather(make("bbse"), model, population.source, 20, workers=0)
    known = SourceInfo({**summary, **bbse}, {"all": Rates.zeros(model)})
    evaluator = Evaluator(population.target, answers, 32, order)
    compare(model, evaluator, [(peeker, known)], workers=0)
    assert sum(isinstance(item, Tensor) for item in HANDED) > 10
    assert sum(1 for _ in reachable(HANDED)) > 500
    assert not found(HANDED, federated, images)


def test_a_target_client_leads_to_no_labels(federated: data.Federated, images: Images) -> None:
    assert not found([federated.population.target, *federated.population.target], federated, images)
    for client in federated.population.target:
        stream = client.stream(7)
        next(stream)
        assert not found(stream, federated, images)


class Holder:
    def __init__(self, secret: Any) -> None:
        self.secret = secret

    def method(self) -> None:
        pass


def in_a_closure(secret: Any) -> Callable[[], Any]:
    return lambda: secret


def under_way(secret: Any) -> Iterator[int]:
    yield 1
    yield len(secret)


def started(secret: Any) -> Iterator[int]:
    generator = under_way(secret)
    next(generator)
    return generator


def hooked(secret: Any) -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *args: secret)
    return layer


HIDINGS: dict[str, Callable[[Any], Any]] = {
    "attribute": Holder,
    "bound method": lambda secret: Holder(secret).method,
    "closure": in_a_closure,
    "default": lambda secret: lambda value=secret: value,
    "partial": lambda secret: partial(print, secret),
    "generator": started,
    "hook of a model": hooked,
    "dictionary in a list": lambda secret: [{"a": (secret,)}],
    "view": lambda secret: torch.from_numpy(np.asarray(secret))[:1],
}


@pytest.mark.parametrize("hiding", HIDINGS)
def test_the_search_finds_what_is_hidden(federated: data.Federated, images: Images, hiding: str) -> None:
    secret = images.y
    assert found(HIDINGS[hiding](secret), federated, images)
    copied = federated.target_labels["target-1"].numpy()
    np.random.default_rng(0).shuffle(copied)
    if hiding != "view":
        for other in (copied, torch.from_numpy(copied).float(), copied.tolist(), federated.target_labels):
            assert found(HIDINGS[hiding](other), federated, images)
        assert not found(HIDINGS[hiding](np.arange(1200) // 2), federated, images)


def test_the_search_follows_weak_references(federated: data.Federated, images: Images) -> None:
    held = Holder(images.y)
    assert found([weakref.ref(held)], federated, images)
    assert not found([weakref.ref(Holder)], federated, images)
