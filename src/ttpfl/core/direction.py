"""Where each module would move on an unlabelled batch.

A learnable tensor moves down the gradient of the objective (by default the mean entropy of the
predictions), a running statistic towards the batch's own. Everything is computed at the global
model, in one evaluation-mode pass.
"""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.convolution import Taps
from ttpfl.core.inputs import Inputs, all_finite
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Moved, PassRecord, Twin, embed
from ttpfl.errors import BatchError
from ttpfl.util.allocator import set_apart
from ttpfl.util.checksum import hash_tensor
from ttpfl.util.settings_kit import must_be, one_of

Objective = Callable[[Tensor], Tensor]


class Change(NamedTuple):
    """A change of one tensor, in float32 or better; outside the window `taps`, if any, it is zero."""

    value: Tensor
    taps: Taps | None
    shape: tuple[int, ...]

    def whole(self) -> Tensor:
        """The change at the tensor's full shape."""
        if self.taps is None:
            return self.value
        return embed(self.value.new_zeros(self.shape), self.taps, self.value)


Direction = dict[str, Change]


def entropy(logits: Tensor) -> Tensor:
    """Mean entropy of softmax(logits), the paper's unsupervised objective.

    >>> round(entropy(torch.zeros(5, 4)).exp().item(), 4)
    4.0
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise BatchError(
            f"logits of shape {tuple(logits.shape)} are not (batch, classes) with two classes or more: "
            "for a single column, multi-label or dense outputs pass objective=, a function from "
            "logits to the unsupervised loss (and loss= for learning), or logits=, a function that "
            "picks the class logits out of the model's output"
        )
    log_p = torch.log_softmax(at_least_float32(logits), dim=1)
    return -(log_p.exp() * log_p).sum(1).mean()


class Probe(NamedTuple):
    """What one unlabelled batch tells at the global model."""

    logits: Tensor
    objective: Tensor
    direction: Direction


def probe(twin: Twin, inputs: Inputs, objective: Objective) -> Probe:
    """One pass at the global model: its logits, the objective there, and every module's direction."""
    record = PassRecord({name: [] for name, spec in twin.specs.items() if spec.statistic})
    logits = twin.fast(inputs, record=record)
    check_finite(logits)
    value = one_number("objective", objective(logits))
    leaves: list[tuple[str, Taps | None, Tensor]] = [
        (name, None, parameter) for name, parameter in twin.parameters.items()
    ]
    leaves += [
        (name, taps, twin.window(name, taps)) for name, taps in sorted(record.windows) if name in twin.specs
    ]
    found: dict[str, list[Change]] = {name: [] for name in twin.specs}
    for name, taps, gradient in _descent(value, [leaf for leaf in leaves if leaf[0] in twin.specs]):
        found[name].append(Change(at_least_float32(gradient), taps, twin.specs[name].shape))
    for name, values in record.statistics.items():
        if values:
            # A layer called several times: the mean over its calls, as its running average saw them.
            change = torch.stack(values).mean(0) - at_least_float32(twin.tensors[name])
            found[name].append(Change(change, None, twin.specs[name].shape))
    direction = {name: _sum(changes, twin.tensors[name]) for name, changes in found.items()}
    return Probe(logits.detach(), value.detach(), direction)


def _descent(
    value: Tensor, leaves: Sequence[tuple[str, Taps | None, Tensor]]
) -> Iterator[tuple[str, Taps | None, Tensor]]:
    """The negative gradients of those leaves that `value` depends on."""
    if leaves and value.requires_grad:
        gradients = torch.autograd.grad(-value, [leaf for *_, leaf in leaves], allow_unused=True)
        given: set[int] = set()
        for (name, taps, _), gradient in zip(leaves, gradients, strict=True):
            if gradient is not None:
                gradient = gradient.to_dense() if gradient.is_sparse else gradient
                # Means are updated in place, but autograd may hand out the same memory for two tensors, as
                # for a + b, or one number for all of a tensor, as for a sum.
                memory = gradient.untyped_storage().data_ptr()
                shared = memory in given or 0 in gradient.stride()
                given.add(memory)
                yield name, taps, gradient.clone() if shared else gradient


def one_number(name: str, value: Tensor) -> Tensor:
    """What the user's function of this name gave, if it is a single number; else an error.

    >>> one_number("loss", torch.zeros(3))
    Traceback (most recent call last):
        ...
    ttpfl.errors.BatchError: loss= gives a tensor of shape (3,): it must give one number, such as the mean
    """
    if not isinstance(value, Tensor):
        raise BatchError(f"{name}= gives a {type(value).__name__}: it must give a tensor with one number")
    if value.numel() != 1:
        raise BatchError(
            f"{name}= gives a tensor of shape {tuple(value.shape)}: it must give one number, such as the mean"
        )
    return value


def check_finite(logits: Tensor) -> Tensor:
    """`logits` of the plain model, if they are numbers; else nothing can be done for this batch."""
    if not all_finite(logits):
        bad = ~torch.isfinite(logits)
        index = int((bad.flatten(1).any(1) if bad.ndim > 1 else bad).nonzero()[0])
        raise BatchError(
            f"the model itself gives logits that are not finite, first for sample {index}: "
            "check the model and the scale of its inputs; nothing was learned from this batch"
        )
    return logits


def _sum(changes: list[Change], tensor: Tensor) -> Change:
    if len(changes) == 1:
        return changes[0]
    total = torch.zeros_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32))
    for change in changes:
        total += change.whole()
    return Change(total, None, tuple(tensor.shape))


def absorb(mean: Direction, direction: Direction, weight: float) -> None:
    """mean += weight * (direction - mean), in place."""
    for name, change in direction.items():
        if mean[name].taps != change.taps:  # images of another size have other live taps
            mean[name] = Change(mean[name].whole(), None, change.shape)
            change = Change(change.whole(), None, change.shape)
        mean[name].value.lerp_(change.value, weight)


def move(
    twin: Twin, direction: Direction, rates: Mapping[str, Tensor], in_channels_last: bool = False
) -> Moved:
    """w = w_G + rate * h for every module in `direction`; variances stop at zero.

    With `in_channels_last` in the layout that is best for `Twin.fast`; other passes would round differently.
    """
    begin = twin.in_channels_last if in_channels_last else twin.tensors
    whole: dict[str, Tensor] = {}
    windows: dict[str, tuple[Taps, Tensor]] = {}
    for name, (value, taps, _) in direction.items():
        start = begin[name] if taps is None else twin.window(name, taps).detach()
        moved = torch.addcmul(at_least_float32(start), value, rates[name])
        if twin.specs[name].nonnegative:
            moved.clamp_(min=0)
        if taps is None:
            whole[name] = moved.to(start.dtype)
        else:
            windows[name] = (taps, moved.to(start.dtype))
    return Moved(whole, windows)


def batch_key(twin: Twin, inputs: Inputs, objective: Objective) -> Hashable | None:
    """What a direction depends on: the model, the batch's content, and the functions in between.

    None if the batch holds something whose content cannot be told.
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
    return (twin.content, str(twin.device), autocast, tuple(twin.specs), digest.digest(), functions)


class DirectionCache:
    """Keeps directions of batches that come again, up to `budget_bytes`.

    What is kept when there is no more room: with `keep="recent"` the least recently used go first, which
    suits changing models; with `keep="first"` nothing new comes in, which suits one model and clients
    that take their turns again and again (where the least recently used would always be the next).

    Entries are found by the content of the batch, the model's weights and the plain attributes of
    its layers, so the same cache may serve many models, clients and threads. Results are the same
    with and without it. (What a model computes from other objects that it holds is not looked at:
    give a model whose forward pass you change by such means a cache of its own.)

    >>> cache = DirectionCache(budget_bytes=2**20)
    >>> cache.hits, cache.misses, cache.bytes
    (0, 0, 0)
    """

    def __init__(self, budget_bytes: int, keep: Literal["recent", "first"] = "recent") -> None:
        if not budget_bytes >= 0:  # infinite is fine
            raise ValueError(
                must_be("budget_bytes", "a non-negative number", budget_bytes, "; 0 keeps nothing")
            )
        one_of("recent", "first").check(ValueError, keep=keep)
        self._room = budget_bytes if keep == "first" else math.inf
        self.budget_bytes = budget_bytes
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[Hashable, Direction] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable | None, compute: Callable[[], Direction]) -> Direction:
        """The direction kept under `key`, else the computed one, kept if there is room.

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
    return {
        name: change._replace(value=value)
        for (name, change), value in zip(direction.items(), values, strict=True)
    }


def _bytes_of(direction: Direction) -> int:
    return sum(change.value.nbytes for change in direction.values())
