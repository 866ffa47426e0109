"""How much a method keeps beside the model."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def extra_bytes(personal: object, model: nn.Module) -> int:
    """Bytes of all tensors that an instance holds, less those of one model.

    >>> from ttpfl.methods import Knowledge, make
    >>> model = nn.Linear(3, 2)
    >>> extra_bytes(make("none").personal(model, Knowledge()), model)
    0
    """
    held = {
        storage.data_ptr(): storage.nbytes() for storage in map(Tensor.untyped_storage, _tensors(personal))
    }
    own = sum(t.untyped_storage().nbytes() for t in (*model.parameters(), *model.buffers()))
    return max(0, sum(held.values()) - own)


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
