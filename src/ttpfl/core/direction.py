"""Where each module would move on an unlabelled batch.

A learnable tensor moves down the gradient of the objective, by default the mean entropy of the predictions. A
running statistic moves towards the statistic of the batch. One evaluation-mode pass of the global model gives
both.
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
from ttpfl.core.inputs import Inputs, all_finite, first_bad
from ttpfl.core.label_prior import LABEL_PRIOR, predicted
from ttpfl.core.log_domain import log_ratio, moved_in_log_domain, slope_in_log_domain
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Moved, PassRecord, Twin, embed
from ttpfl.errors import BatchError
from ttpfl.util.allocator import set_apart
from ttpfl.util.checksum import hash_tensor
from ttpfl.util.settings_kit import Rule, one_of

Objective = Callable[[Tensor], Tensor]
_Leaf = tuple[str, Taps | None, Tensor]


class Change(NamedTuple):
    """A change of one tensor, in float32 or better; zero outside the window `taps`, if any."""

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
            f"logits of shape {tuple(logits.shape)} are not (batch, classes) with two classes or more. "
            "For a single column, multi-label or dense outputs pass objective=, a function from logits to "
            "the unsupervised loss (and loss= for learning), or logits=, a function that selects the class "
            "logits from the model's output"
        )
    log_p = torch.log_softmax(at_least_float32(logits), dim=1)
    return -(log_p.exp() * log_p).sum(1).mean()


class Probe(NamedTuple):
    """Results of one pass of the global model on an unlabelled batch."""

    logits: Tensor
    objective: Tensor
    direction: Direction


def probe(twin: Twin, inputs: Inputs, objective: Objective) -> Probe:
    """Compute logits, objective and the direction of every module in one pass of the global model.

    For the label prior, the direction holds the predictions of all samples: see `RunningDirection.current`.
    """
    record = PassRecord({name: [] for name, spec in twin.specs.items() if spec.statistic})
    logits = twin.fast(inputs, record=record)
    check_finite(logits)
    value = one_number("objective", objective(logits))
    leaves: list[_Leaf] = [(name, None, tensor) for name, tensor in twin.parameters.items()]
    leaves += [(name, taps, twin.window(name, taps)) for name, taps in sorted(record.windows)]
    changes: dict[str, list[Change]] = {name: [] for name in twin.specs}
    for name, taps, gradient in _descent(value, [leaf for leaf in leaves if leaf[0] in twin.specs]):
        changes[name].append(Change(at_least_float32(gradient), taps, twin.specs[name].shape))
    for name, values in record.statistics.items():
        if values:
            # The mean over all calls of the layer, like its running average.
            measured, stored = torch.stack(values).mean(0), at_least_float32(twin.tensors[name])
            change = log_ratio(measured, stored) if twin.specs[name].log_domain else measured - stored
            changes[name].append(Change(change, None, twin.specs[name].shape))
    direction = {name: _sum(parts, twin.tensors[name]) for name, parts in changes.items()}
    if twin.classes:
        direction[LABEL_PRIOR] = Change(predicted(logits, twin.classes), None, (twin.classes,))
    return Probe(logits.detach(), value.detach(), direction)


def _descent(value: Tensor, leaves: Sequence[_Leaf]) -> Iterator[_Leaf]:
    """Negative gradients of the leaves that `value` depends on."""
    if not leaves or not value.requires_grad:
        return
    gradients = torch.autograd.grad(-value, [leaf for *_, leaf in leaves], allow_unused=True)
    used: set[int] = set()
    for (name, taps, _), gradient in zip(leaves, gradients, strict=True):
        if gradient is not None:
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            # Means are updated in place, but autograd may return the same memory for two tensors, as for
            # a + b, or one number for all elements of a tensor, as for a sum.
            memory = gradient.untyped_storage().data_ptr()
            shared = memory in used or 0 in gradient.stride()
            used.add(memory)
            yield name, taps, gradient.clone() if shared else gradient


def one_number(name: str, value: Tensor) -> Tensor:
    """Return the result of the user's function `name`; raise a BatchError unless it is a single number.

    >>> one_number("loss", torch.zeros(3))
    Traceback (most recent call last):
        ...
    ttpfl.errors.BatchError: loss= returns a tensor of shape (3,): it must return one number, such as the mean
    """
    if isinstance(value, Tensor) and value.numel() == 1:
        return value
    kind = f"tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    number = "one number, such as the mean" if isinstance(value, Tensor) else "a tensor with one number"
    raise BatchError(f"{name}= returns a {kind}: it must return {number}")


def check_finite(logits: Tensor) -> Tensor:
    """Return the logits of the plain model; raise a BatchError if they are not finite."""
    if not all_finite(logits):
        raise BatchError(
            f"the model returns logits that are not finite, first for sample {first_bad(logits)}: "
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
        if mean[name].taps != change.taps:  # images of another size use other taps
            mean[name] = Change(mean[name].whole(), None, change.shape)
            change = Change(change.whole(), None, change.shape)
        mean[name].value.lerp_(change.value, weight)


def move(
    twin: Twin, direction: Direction, rates: Mapping[str, Tensor], in_channels_last: bool = False
) -> Moved:
    """Compute w = w_G + rate * h for every module in `direction`; variances are never negative.

    `in_channels_last` gives the fastest layout for `Twin.fast`; other passes would round differently.
    """
    tensors = twin.in_channels_last if in_channels_last else twin.tensors
    whole: dict[str, Tensor] = {}
    windows: dict[str, tuple[Taps, Tensor]] = {}
    offset: Tensor | None = None
    for name, (value, taps, _) in direction.items():
        if name == LABEL_PRIOR:
            offset = rates[name] * value
            continue
        start = tensors[name] if taps is None else twin.window(name, taps).detach()
        if twin.specs[name].log_domain:
            moved = moved_in_log_domain(start, value, rates[name])
        else:
            moved = torch.addcmul(at_least_float32(start), value, rates[name])
            if twin.specs[name].nonnegative:
                moved.clamp_(min=0)
        if taps is None:
            whole[name] = moved.to(start.dtype)
        else:
            windows[name] = (taps, moved.to(start.dtype))
    return Moved(whole, windows, offset)


def velocity(twin: Twin, name: str, change: Change, moved: Tensor) -> Tensor:
    """Derivative of a moved tensor in its rate; `moved` is its value."""
    in_log_domain = name != LABEL_PRIOR and twin.specs[name].log_domain
    return slope_in_log_domain(moved, change.value) if in_log_domain else change.value


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
    return (twin.content, str(twin.device), autocast, movable, twin.classes, digest.digest(), functions)


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
