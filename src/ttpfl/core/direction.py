"""Where each module would move on an unlabelled batch.

A learnable tensor moves down the gradient of the objective, by default the mean entropy of the predictions. A
running statistic moves towards the statistic of the batch. One evaluation-mode pass of the global model gives
both.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl._moved import renamed
from ttpfl.core.at_once import at_once
from ttpfl.core.convolution import Taps
from ttpfl.core.inputs import Inputs, all_finite, first_bad
from ttpfl.core.last_layer import LastLayer
from ttpfl.core.log_domain import log_ratio, moved_in_log_domain, slope_in_log_domain
from ttpfl.core.network import ModuleSpec
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Moved, PassRecord, Twin, embed
from ttpfl.errors import BatchError

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
    log_p = _log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(1).mean()


def _log_probabilities(logits: Tensor) -> Tensor:
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise BatchError(
            f"logits of shape {tuple(logits.shape)} are not (batch, classes) with two classes or more. "
            "For a single column, multi-label or dense outputs pass objective=, a function from logits to "
            "the unsupervised loss (and loss= for learning), or logits=, a function that selects the class "
            "logits from the model's output"
        )
    return torch.log_softmax(at_least_float32(logits), dim=1)


def entropy_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The `entropy`, and its derivative in the logits.

    >>> value, slope = entropy_and_slope(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    >>> slope.round(decimals=4)
    tensor([[ 0.0000,  0.0000],
            [-0.0983,  0.0983]])
    """
    log_p = _log_probabilities(logits)
    p = log_p.exp()
    of_samples = (p * log_p).sum(1, keepdim=True)
    return -of_samples.mean(), p * (of_samples - log_p) / len(logits)


class Probe(NamedTuple):
    """Results of one pass of the global model on an unlabelled batch."""

    logits: Tensor
    objective: Tensor
    direction: Direction
    record: PassRecord
    """For `Twin.again`."""


def probe(twin: Twin, inputs: Inputs, objective: Objective) -> Probe:
    """Compute logits, objective and the direction of every module in one pass of the global model.

    There is no backward pass if the last layer alone needs a gradient.
    """
    record = PassRecord({name: [] for name, spec in twin.specs.items() if spec.statistic})
    last = twin.last_layer
    with nullcontext() if last is None else torch.no_grad():
        logits = check_finite(twin.first(inputs, record))
    if last is None:
        value = one_number("objective", objective(logits))
        gradients = list(_descent(value, _leaves(twin, record)))
    elif len(record.calls) == 1 and record.calls[0].returned(logits):
        value, gradients = _descent_of(last, record.calls[0].features, logits, objective)
    else:
        twin.last_layer = None  # another layer is the last one
        return probe(twin, inputs, objective)
    changes: dict[str, list[Change]] = {name: [] for name in twin.specs}
    for name, taps, gradient in (leaf for leaf in gradients if leaf[0] in changes):
        changes[name].append(Change(at_least_float32(gradient), taps, twin.specs[name].shape))
    for name, change in _towards(twin, record.statistics):
        changes[name].append(Change(change, None, twin.specs[name].shape))
    direction = {name: _sum(parts, twin.tensors[name]) for name, parts in changes.items()}
    return Probe(logits.detach(), value.detach(), direction, record)


def _towards(twin: Twin, statistics: Mapping[str, list[Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Where running statistics move, given those of the batch in every call of their layers."""
    for rule, log_domain in ((log_ratio, True), (_difference, False)):
        called = {
            name: values
            for name, values in statistics.items()
            if values and twin.specs[name].log_domain == log_domain
        }
        # The mean over all calls of the layer, like its running average.
        measured = [v[0] if len(v) == 1 else torch.stack(v).mean(0) for v in called.values()]
        if called:
            yield from zip(
                called, at_once(rule, measured, [twin.tensors[name] for name in called]), strict=True
            )


def _difference(measured: Tensor, stored: Tensor) -> Tensor:
    return measured - at_least_float32(stored)


def _leaves(twin: Twin, record: PassRecord) -> list[_Leaf]:
    """The tensors and windows of kernels that need gradients."""
    leaves: list[_Leaf] = [(name, None, tensor) for name, tensor in twin.parameters.items()]
    leaves += [(name, taps, twin.window(name, taps)) for name, taps in sorted(record.windows)]
    return [leaf for leaf in leaves if leaf[0] in twin.specs]


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


def _descent_of(
    last: LastLayer, features: Tensor, logits: Tensor, objective: Objective
) -> tuple[Tensor, list[_Leaf]]:
    """The objective, and negative gradients of the last layer's tensors: of the entropy in closed form."""
    if objective is entropy:
        value, slope = entropy_and_slope(logits)
    else:
        logits = logits.detach().requires_grad_()
        value = one_number("objective", objective(logits))
        if not value.requires_grad:
            return value, []
        slope = torch.autograd.grad(value, logits)[0]
    return value, [(name, None, part) for name, part in last.gradients(features, -slope).items()]


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
    statistics: dict[Callable[..., Tensor], list[tuple[str, Tensor, Tensor, Tensor]]] = {}
    for name, (value, taps, _) in direction.items():
        start = tensors[name] if taps is None else twin.window(name, taps).detach()
        rule = _rule(twin.specs[name])
        if twin.specs[name].statistic:
            statistics.setdefault(rule, []).append((name, start, value, rates[name].expand_as(value)))
        elif taps is None:
            whole[name] = rule(start, value, rates[name])
        else:
            windows[name] = (taps, rule(start, value, rates[name]))
    for rule, rows in statistics.items():
        names, *columns = zip(*rows, strict=True)
        whole.update(zip(names, at_once(rule, *columns), strict=True))
    return Moved(whole, windows)


def _rule(spec: ModuleSpec) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """How a tensor moves, given its value, its direction and its rate."""
    if spec.log_domain:
        return _moved_variance
    return _moved_above_zero if spec.nonnegative else _moved


def _moved(start: Tensor, change: Tensor, rate: Tensor) -> Tensor:
    return torch.addcmul(at_least_float32(start), change, rate).to(start.dtype)


def _moved_variance(start: Tensor, ratio: Tensor, rate: Tensor) -> Tensor:
    return moved_in_log_domain(start, ratio, rate).to(start.dtype)


def _moved_above_zero(start: Tensor, change: Tensor, rate: Tensor) -> Tensor:
    return _moved(start, change, rate).clamp_(min=0)


def distance(twin: Twin, direction: Direction, rates: Mapping[str, Tensor], moved: Moved) -> float:
    """Euclidean norm of the change of all tensors."""
    # The direction does not tell where variances stopped at zero.
    clamped = [name for name in moved.whole if twin.specs[name].nonnegative]
    others = [name for name in direction if name not in clamped]
    changes = [_difference(moved.whole[name], twin.tensors[name]) for name in clamped]
    changes += [direction[name].value for name in others]
    if not changes:
        return 0.0
    norms = torch.stack(torch._foreach_norm(changes))
    if others:
        norms[len(clamped) :] *= torch.stack([rates[name] for name in others])
    return float(torch.linalg.vector_norm(norms))


def velocity(twin: Twin, name: str, change: Change, moved: Tensor) -> Tensor:
    """Derivative of a moved tensor in its rate; `moved` is its value."""
    return slope_in_log_domain(moved, change.value) if twin.specs[name].log_domain else change.value


__getattr__ = renamed(__name__)
