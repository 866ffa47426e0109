"""Learning rates on source clients: simulate adaptation, measure the loss with labels, refine.

These are the steps of one client. Engines call them in this process, in worker processes or at sites.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.core.direction import (
    Direction,
    Objective,
    entropy,
    move,
    one_number,
    probe,
    velocity,
)
from ttpfl.core.direction_cache import DirectionCache, batch_key
from ttpfl.core.divergence import check_reach, check_slope
from ttpfl.core.inputs import Inputs, all_finite, checked, released, split_batch
from ttpfl.core.label_prior import LABEL_PRIOR, predicted
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.outputs import Readout
from ttpfl.core.privacy_record import UNPROTECTED, Account
from ttpfl.core.rates import MODES, Mode, Rates
from ttpfl.core.running import RunningDirection
from ttpfl.core.running_prior import RunningPrior
from ttpfl.core.statistics import at_least_float32
from ttpfl.core.twin import Moved, Twin, isolated
from ttpfl.errors import BatchError, ModelError, RatesError, noted
from ttpfl.util.settings_kit import POSITIVE

Loss = Callable[[Tensor, Tensor], Tensor]
Observe = Callable[[Tensor, Tensor, Tensor], None]

RECENT = 4  # the result is checked on the clients of the last rounds


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of class indices, the default supervised loss."""
    if labels.ndim != 1 or labels.dtype.is_floating_point or len(labels) != len(logits):
        raise BatchError(
            f"labels of {labels.dtype} with shape {tuple(labels.shape)} are not one class index for each of "
            f"{len(logits)} samples: pass loss= for other kinds of labels"
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < logits.shape[1]):
        bad = int(((labels < 0) | (labels >= logits.shape[1])).nonzero()[0])
        raise BatchError(
            f"label {int(labels[bad])} of sample {bad} is not a class in 0..{logits.shape[1] - 1}"
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
    """Refine the rates on one client's labelled batches, in order, and return new ones.

    Args:
        model: the global model; it is not changed.
        rates: initial rates; they are not changed.
        batches: `(x, y)` pairs, `((x1, x2), y)`, `({...}, y)`, or dicts with "labels".
        lr: learning rate.
        mode: "batch" uses the direction of each batch (the paper); "online" the mean of this client's
            directions so far, like an online personalizer.
        cache: keeps the directions of recurring batches.
        logits: maps the model's output to logits, for outputs that are not a tensor.
        objective: maps logits to the unsupervised loss.
        loss: maps logits and labels to the supervised loss.

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
    """`refine_rates` for engines that keep a twin.

    `observe` is called with the adapted logits, the labels and the loss of every batch.
    """
    MODES.check(RatesError, mode=mode)
    POSITIVE.check(RatesError, lr=lr)
    values = rates.values.detach().to(twin.device)
    scale = lr / rates.sizes.clamp(min=1).to(values).sqrt()
    adaptation = Adaptation(twin, rates, mode, cache, objective)
    direction: Direction = {}
    with isolated():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client"):
                inputs, labels = checked_pair(batch)
                direction = adaptation.direction(inputs)
                slope = adaptation.slope(values, direction, inputs, labels, loss, observe)
                check_slope(rates, values, slope, lr)
                values = values - scale * slope
                if not all_finite(values):
                    rates.with_values(values)  # raises an error that names the rate
        check_reach(twin, rates.with_values(values), direction, lr)
    refined = values.to(rates.values.device, copy=True)
    return rates.with_values(refined, mode=mode, account=Account(no_bound=UNPROTECTED), guard=None)


def adapted_tally(
    twin: Twin,
    rates: Rates,
    batches: Iterable[Any],
    mode: Mode,
    cache: DirectionCache | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
) -> MetricSums:
    """Compute loss and accuracy after adaptation with fixed rates; without adaptation if they are zero."""
    return tallied(Adaptation(twin, rates, mode, cache, objective), rates, batches, loss)


def tallied(adaptation: "Adaptation", rates: Rates, batches: Iterable[Any], loss: Loss) -> MetricSums:
    """`adapted_tally` for callers that also need what the adaptation predicted."""
    twin, sums = adaptation.twin, MetricSums()
    values = rates.values.detach().to(twin.device)
    with isolated(), torch.no_grad():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index} of this client"):
                inputs, labels = checked_pair(batch)
                moved = None
                if values.any():
                    with torch.enable_grad():
                        direction = adaptation.direction(inputs)
                    moved = adaptation.moved(values, direction, inputs)
                logits = adaptation.with_prior(twin.fast(inputs, moved), values)
                sums.add(logits, labels, one_number("loss", loss(logits, labels)))
    return sums


def checked_pair(batch: Any) -> tuple[Inputs, Tensor]:
    """Inputs and labels of a batch; raise an error if the inputs are invalid."""
    inputs, labels = split_batch(batch)
    return checked(inputs), released(labels)


class Adaptation:
    """The adaptation that a personalizer would do, simulated on one client's batches."""

    def __init__(
        self,
        twin: Twin,
        rates: Rates,
        mode: Mode,
        cache: DirectionCache | None,
        objective: Objective,
        keep_predictions: bool = False,
    ) -> None:
        self.twin, self._cache, self._objective = twin, cache, objective
        self._running = RunningDirection(mode == "online")
        self._prior = RunningPrior(rates.prior, mode == "online") if rates.prior else None
        self.predictions: list[Tensor] | None = [] if keep_predictions and rates.prior else None
        """Predicted probabilities of each batch before the label prior, if they are kept."""
        groups = enumerate(rates.members.values())
        self._group_of = {name: index for index, members in groups for name in members}

    def direction(self, inputs: Inputs) -> Direction:
        """Direction of this batch; in online mode, the mean of all batches so far."""
        self._running.add(self._of_batch(inputs))
        return self._running.mean

    def _of_batch(self, inputs: Inputs) -> Direction:
        def compute() -> Direction:
            return probe(self.twin, inputs, self._objective).direction

        key = None if self._cache is None else batch_key(self.twin, inputs, self._objective)
        return compute() if self._cache is None else self._cache.get(key, compute)

    def moved(self, values: Tensor, direction: Direction, inputs: Inputs) -> Moved:
        """Move the modules along `direction` with rates of these values."""
        rates = values.unbind()
        rate_of = {name: rates[self._group_of[name]] for name in direction}
        return move(self.twin, direction, rate_of, self.twin.runner.takes_channels_last(inputs))

    def with_prior(self, logits: Tensor, values: Tensor) -> Tensor:
        """The logits with the label prior, if there is one; this batch counts from now on if it is finite."""
        if self._prior is None or not all_finite(logits):
            return logits
        if self.predictions is not None:
            self.predictions.append(predicted(logits.detach(), len(self._prior.counts)).cpu())
        rate = values[self._group_of[LABEL_PRIOR]]
        return self._prior.applied(logits, rate) if rate.requires_grad or rate != 0 else logits

    def slope(
        self,
        values: Tensor,
        direction: Direction,
        inputs: Inputs,
        labels: Tensor,
        loss: Loss,
        observe: Observe | None,
    ) -> Tensor:
        """Derivative of the supervised loss after adaptation with respect to each rate.

        It is <dw / drate, gradient in w>, summed over the modules that share the rate, with dw / drate = h
        except in the log domain. There is no second derivative, since h does not depend on the rates. The
        label prior follows from the logits, so autograd goes through it, except for earlier batches.
        """
        moved, values = self.moved(values, direction, inputs), values.detach().requires_grad_()
        leaves = moved.leaves()
        logits = self.with_prior(self.twin.fast(inputs, moved), values)
        result = one_number("loss", loss(logits, labels))
        if observe is not None:
            observe(logits.detach(), labels, result.detach())
        if not result.requires_grad:  # the loss depends on nothing that moves
            return torch.zeros_like(values)
        of_prior, *gradients = torch.autograd.grad(result, [values, *leaves.values()], allow_unused=True)
        parts = {
            name: (velocity(self.twin, name, direction[name], leaves[name].detach()) * gradient).sum()
            for name, gradient in zip(leaves, gradients, strict=True)
            if gradient is not None
        }
        if not parts and of_prior is None:
            raise ModelError(
                "no gradient of the loss reaches any module that has a rate: pass a model whose last layers "
                "are differentiable (not quantised, not detached)"
            )
        slope = torch.zeros_like(values) if of_prior is None else of_prior
        if parts:
            groups = torch.tensor([self._group_of[name] for name in parts], device=values.device)
            slope = slope.index_add(0, groups, torch.stack(list(parts.values())).to(values))
        return slope.detach()


def draw_cohort(names: Sequence[Any], size: int, seed: int, number: int) -> list[Any]:
    """Draw the clients of one round; the draw depends only on the seed and the number of the round.

    >>> draw_cohort(["a", "b", "c", "d"], size=2, seed=0, number=7)
    ['a', 'c']
    """
    chosen = np.random.default_rng([seed, number]).choice(len(names), size, replace=False)
    return [names[index] for index in sorted(chosen)]


def recent_clients(names: Sequence[Any], size: int, seed: int, rounds: int) -> list[Any]:
    """Clients of the last rounds, on which the result is checked.

    >>> recent_clients(["a", "b", "c", "d"], size=2, seed=0, rounds=1)
    ['c', 'd']
    """
    recent = {
        index
        for number in range(max(0, rounds - RECENT), rounds)
        for index in draw_cohort(range(len(names)), size, seed, number)
    }
    return [names[index] for index in sorted(recent)]
