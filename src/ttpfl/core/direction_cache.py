"""A cache for the directions of recurring batches."""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Literal

import torch
from torch import Tensor

from ttpfl.core.direction import Direction, Objective
from ttpfl.core.inputs import Inputs
from ttpfl.core.twin import Twin
from ttpfl.util.allocator import set_apart
from ttpfl.util.checksum import hash_tensor
from ttpfl.util.settings_kit import Rule, one_of


def batch_key(twin: Twin, inputs: Inputs, objective: Objective) -> Hashable | None:
    """Key for everything a direction depends on: the model, the content of the batch, and the functions.

    None if the batch contains an object whose content cannot be hashed.
    """
    digest = hashlib.sha256()
    for name, value in inputs.leaves():
        digest.update(name.encode())
        if isinstance(value, Tensor):
            hash_tensor(digest, value)
        elif value is None or isinstance(value, (bool, int, float, str)):
            digest.update(repr(value).encode())
        else:
            return None
    kind = twin.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    functions = (objective, twin.readout)
    if not all(isinstance(function, Hashable) for function in functions):
        return None
    movable = tuple((name, spec.log_domain) for name, spec in twin.specs.items())
    return (twin.content, str(twin.device), autocast, movable, digest.digest(), functions)


class DirectionCache:
    """Caches the directions of recurring batches, up to `budget_bytes`.

    When the cache is full, `keep="recent"` removes the least recently used entries, which suits changing
    models. `keep="first"` adds no new ones, which suits one model and clients that recur in turn (there, the
    least recently used entry would always be the next one needed).

    The key is the content of the batch, the model's weights and the plain attributes of its layers, so
    models, clients and threads can share a cache. Results are the same with and without it. Other objects
    that a model uses are not part of the key: if you change them, use a separate cache.

    >>> cache = DirectionCache(budget_bytes=2**20)
    >>> cache.hits, cache.misses, cache.bytes
    (0, 0, 0)
    """

    def __init__(self, budget_bytes: int, keep: Literal["recent", "first"] = "recent") -> None:
        not_negative = Rule("a non-negative number", lambda value: value >= 0)  # infinity is allowed
        not_negative.check(ValueError, "; 0 keeps nothing", budget_bytes=budget_bytes)
        one_of("recent", "first").check(ValueError, keep=keep)
        self._room = budget_bytes if keep == "first" else math.inf
        self.budget_bytes = budget_bytes
        self.bytes = self.hits = self.misses = 0
        self._entries: OrderedDict[Hashable, Direction] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable | None, compute: Callable[[], Direction]) -> Direction:
        """Return the direction under `key`; else compute it, and keep it if there is room.

        >>> cache = DirectionCache(budget_bytes=2**20)
        >>> cache.get("a batch", dict) is cache.get("a batch", dict)
        True
        """
        with self._lock:
            if key in self._entries:
                self.hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
            self.misses += 1
        direction = compute()
        size = _bytes_of(direction)
        if key is not None and self._fits(size):
            direction = _set_apart(direction)
        with self._lock:
            if key is not None and key not in self._entries and self._fits(size):
                self._entries[key] = direction
                self.bytes += size
                while self.bytes > self.budget_bytes:
                    self.bytes -= _bytes_of(self._entries.popitem(last=False)[1])
        return direction

    def _fits(self, size: int) -> bool:
        return size <= self.budget_bytes and self.bytes + size <= self._room


def _set_apart(direction: Direction) -> Direction:
    values = set_apart([change.value for change in direction.values()])
    pairs = zip(direction.items(), values, strict=True)
    return {name: change._replace(value=value) for (name, change), value in pairs}


def _bytes_of(direction: Direction) -> int:
    return sum(change.value.nbytes for change in direction.values())
