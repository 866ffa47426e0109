"""Learning the rates on source clients: simulate adaptation, look with labels how it went, refine.

The pure steps are here; engines that spread clients over processes or machines call the same ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.core.direction import (
    Change,
    Direction,
    DirectionCache,
    Objective,
    absorb,
    batch_key,
    entropy,
    move,
    one_number,
    probe,
)
from ttpfl.core.divergence import check_reach, check_slope
from ttpfl.core.inputs import Inputs, all_finite, checked, released, split_batch
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.outputs import Readout
from ttpfl.core.privacy_record import UNPROTECTED, Account
from ttpfl.core.rates import MODES, Mode, Rates
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Moved, Twin, isolated
from ttpfl.errors import BatchError, ModelError, RatesError, noted
from ttpfl.util.settings_kit import POSITIVE

Loss = Callable[[Tensor, Tensor], Tensor]
Observe = Callable[[Tensor, Tensor, Tensor], None]

RECENT = 4  # rounds whose clients a result is checked on


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy, the default supervised loss, for labels that are class indices."""
    if labels.ndim != 1 or labels.dtype.is_floating_point or len(labels) != len(logits):
        raise BatchError(
            f"labels of {labels.dtype} with shape {tuple(labels.shape)} are not one class index for "
            f"each of {len(logits)} samples: for other targets pass loss="
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < logits.shape[1]):
        bad = ((labels < 0) | (labels >= logits.shape[1])).nonzero()
        raise BatchError(
            f"label {int(labels[bad[0]])} of sample {int(bad[0])} is not a class in 0..{logits.shape[1] - 1}"
        )
    return F.cross_entropy(at_least_float32(logits), labels.long())


def refine_rates(
    model: nn.Module,
    rates: Rates,
    batches: Iterable[Any],
    lr: float = 0.1,
    mode: Mode = "batch",
    cache: DirectionCache | None = None,
    *,
    logits: Readout | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
) -> Rates:
    """One client's turn: refine the rates on its labelled batches, in order, and return new ones.

    Args:
        model: the global model; it is not changed.
        rates: where to start; they are not changed.
        batches: `(x, y)` pairs, `((x1, x2), y)`, `({...}, y)`, or dicts with "labels".
        lr: step size of the refinement.
        mode: "batch" refines with each batch's own direction (the paper); "online" with the mean of
            this client's directions so far, as an online personalizer will use them.
        cache: keeps directions of batches that come again.
        logits: from the model's output to logits, for outputs that are not a tensor.
        objective: from logits to the unsupervised loss.
        loss: from logits and labels to the supervised loss.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> batch = (torch.randn(8, 3), torch.randint(2, (8,)))
    >>> rates = refine_rates(model, Rates.zeros(model), [batch], lr=0.1)
    >>> bool(rates.values.any())
    True
    """
    rates.checked().check_fits(model)
    twin = Twin(model, rates.modules, readout=logits)
    return refine(twin, rates, batches, lr, mode, cache, objective, loss)


def refine(
    twin: Twin,
    rates: Rates,
    batches: Iterable[Any],
    lr: float,
    mode: Mode,
    cache: DirectionCache | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
    observe: Observe | None = None,
) -> Rates:
    """`refine_rates` on a twin that is already there, for engines that keep one.

    `observe` is told the logits after adaptation, the labels and the loss of every batch.
    """
    MODES.check(RatesError, mode=mode)
    POSITIVE.check(RatesError, lr=lr)
    values = rates.values.detach().to(twin.device)
    group_of = _group_of(rates)
    scale = lr / rates.sizes.clamp(min=1).to(values).sqrt()
    mean: Direction = {}
    direction: Direction = {}
    with isolated():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client's turn"):
                inputs, labels, direction = _look(twin, batch, index, mode, mean, objective, cache)
                slope = _slope(twin, group_of, values, direction, inputs, labels, loss, observe)
                check_slope(rates, values, slope, lr)
                values = values - scale * slope
                if not all_finite(values):
                    rates.with_values(values)  # an error that says which
        check_reach(twin, rates.with_values(values), direction, lr)
    refined = values.to(rates.values.device, copy=True)
    return rates.with_values(refined, mode=mode, account=Account(no_bound=UNPROTECTED))


def adapted_tally(
    twin: Twin,
    rates: Rates,
    batches: Iterable[Any],
    mode: Mode,
    cache: DirectionCache | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
) -> MetricSums:
    """Loss and accuracy after adaptation, with rates that stay as they are; without any, if they are zero."""
    tally, values, group_of = MetricSums(), rates.values.detach().to(twin.device), _group_of(rates)
    mean: Direction = {}
    with isolated(), torch.no_grad():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client's data"):
                if values.any():
                    with torch.enable_grad():
                        inputs, labels, direction = _look(twin, batch, index, mode, mean, objective, cache)
                    logits = twin.fast(inputs, _moved(twin, group_of, values, direction, inputs))
                else:
                    inputs, labels = _split(batch)
                    logits = twin.fast(inputs)
                tally.add(logits, labels, one_number("loss", loss(logits, labels)))
    return tally


def _group_of(rates: Rates) -> dict[str, int]:
    return {name: place for place, members in enumerate(rates.members.values()) for name in members}


def _split(batch: Any) -> tuple[Inputs, Tensor]:
    inputs, labels = split_batch(batch)
    return checked(inputs), released(labels)


def _look(
    twin: Twin,
    batch: Any,
    index: int,
    mode: Mode,
    mean: Direction,
    objective: Objective,
    cache: DirectionCache | None,
) -> tuple[Inputs, Tensor, Direction]:
    """A batch's inputs and labels, and the direction to adapt in; `mean` is that of the batches before."""
    inputs, labels = _split(batch)
    direction = _direction(twin, inputs, objective, cache)
    return inputs, labels, _running_mean(mean, direction, index + 1) if mode == "online" else direction


def _direction(twin: Twin, inputs: Inputs, objective: Objective, cache: DirectionCache | None) -> Direction:
    def compute() -> Direction:
        return probe(twin, inputs, objective).direction

    return compute() if cache is None else cache.get(batch_key(twin, inputs, objective), compute)


def _running_mean(mean: Direction, direction: Direction, count: int) -> Direction:
    if count == 1:  # a copy: the direction may belong to the cache
        mean.update({name: Change(c.value.clone(), c.taps, c.shape) for name, c in direction.items()})
    else:
        absorb(mean, direction, 1 / count)
    return mean


def _moved(
    twin: Twin, group_of: Mapping[str, int], values: Tensor, direction: Direction, inputs: Inputs
) -> Moved:
    rates = values.unbind()
    rate_of = {name: rates[group_of[name]] for name in direction}
    return move(twin, direction, rate_of, in_channels_last=twin.runner.takes_channels_last(inputs))


def _slope(
    twin: Twin,
    group_of: Mapping[str, int],
    values: Tensor,
    direction: Direction,
    inputs: Inputs,
    labels: Tensor,
    loss: Loss,
    observe: Observe | None,
) -> Tensor:
    """Derivative of the supervised loss after adaptation, with respect to each rate.

    It is <h, gradient in w>, summed over the modules that share the rate: no second derivative,
    since h does not depend on the rates.
    """
    moved = _moved(twin, group_of, values, direction, inputs)
    leaves = moved.leaves()
    logits = twin.fast(inputs, moved)
    result = one_number("loss", loss(logits, labels))
    if observe is not None:
        observe(logits.detach(), labels, result.detach())
    if not result.requires_grad:  # nothing that moves has any influence
        return torch.zeros_like(values)
    gradients = torch.autograd.grad(result, list(leaves.values()), allow_unused=True)
    parts = {
        name: (direction[name].value * gradient).sum()
        for name, gradient in zip(leaves, gradients, strict=True)
        if gradient is not None
    }
    if not parts:
        raise ModelError(
            "no gradient of the loss reaches anything that has a rate: hand over a model whose last layers "
            "are differentiable (not quantised, not detached)"
        )
    groups = torch.tensor([group_of[name] for name in parts], device=values.device)
    return torch.zeros_like(values).index_add_(0, groups, torch.stack(list(parts.values())).to(values))


def draw_cohort(names: Sequence[Any], size: int, seed: int, number: int) -> list[Any]:
    """The clients of one round: a draw that depends on the seed and the round's number alone.

    >>> draw_cohort(["a", "b", "c", "d"], size=2, seed=0, number=7)
    ['a', 'c']
    """
    chosen = np.random.default_rng([seed, number]).choice(len(names), size, replace=False)
    return [names[index] for index in sorted(chosen)]


def recent_clients(names: Sequence[Any], size: int, seed: int, rounds: int) -> list[Any]:
    """The clients of the last rounds, on whose data a result is checked: they are at hand, and enough.

    >>> recent_clients(["a", "b", "c", "d"], size=2, seed=0, rounds=1)
    ['c', 'd']
    """
    seen = {
        name
        for number in range(max(0, rounds - RECENT), rounds)
        for name in draw_cohort(range(len(names)), size, seed, number)
    }
    return [names[place] for place in sorted(seen)]
