"""Memory of a method in addition to the model."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn


def extra_bytes(adapter: object, model: nn.Module) -> int:
    """Bytes of all tensors that an adapter holds, minus those of one model.

    >>> from ttpfl.methods import SourceInfo, make
    >>> model = nn.Linear(3, 2)
    >>> extra_bytes(make("none").adapter(model, SourceInfo()), model)
    0
    """
    return max(0, _bytes(_tensors(adapter)) - _bytes([*model.parameters(), *model.buffers()]))


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Memory that several tensors share counts once."""
    storages = map(Tensor.untyped_storage, tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _tensors(root: object) -> Iterator[Tensor]:
    seen: set[int] = set()
    todo: list[Any] = [root]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, dict):
            todo += item.values()
        elif isinstance(item, (list, tuple, set)):
            todo += item
        elif hasattr(item, "__dict__") and not isinstance(item, type):
            todo += vars(item).values()
