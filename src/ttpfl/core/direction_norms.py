"""Norms of directions: H in the paper's bounds."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.direction import Direction, Objective, entropy, probe
from ttpfl.core.inputs import checked, split_batch
from ttpfl.core.label_prior import LABEL_PRIOR, SMOOTHING
from ttpfl.core.outputs import Readout
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin, isolated
from ttpfl.errors import BatchError, noted


def direction_norms(
    model: nn.Module,
    batches: Iterable[Any],
    rates: Rates | None = None,
    *,
    logits: Readout | None = None,
    objective: Objective = entropy,
) -> dict[str, float]:
    """Compute the largest norm of each module's direction over all batches; the largest of these is H.

    H also holds for online adaptation, since a mean is never longer than the longest direction. Other batches
    may have longer ones. The direction of the label prior follows from adapted predictions, so for it, the
    result is the bound that holds for all predictions.

    Args:
        model: the global model; it is not changed.
        batches: of any number of clients, in the form that `refine_rates` accepts; labels are ignored.
        rates: which modules have or share a rate; one rate per tensor if None.
        logits: maps the model's output to logits.
        objective: maps logits to the unsupervised loss.

    >>> model = nn.Sequential(nn.BatchNorm1d(2, affine=False), nn.Linear(2, 2))
    >>> batch = (torch.tensor([[3.0, 3.0], [3.0, 5.0]]), torch.tensor([0, 1]))
    >>> norms = direction_norms(model, [batch])
    >>> norms["0.running_mean"]  # from (0, 0) to (3, 4)
    5.0
    """
    rates = Rates.zeros(model) if rates is None else rates
    rates.checked().check_fits(model)
    twin = Twin(model, rates.modules, readout=logits)
    largest = torch.zeros(len(rates.values), device=twin.device)
    index = -1
    with isolated():
        for index, batch in enumerate(batches):
            with noted(f"in batch {index}"):
                direction = probe(twin, checked(split_batch(batch)[0]), objective).direction
                largest = torch.maximum(largest, _norms(direction, rates, twin.device))
    if index < 0:
        raise BatchError("no batches: pass at least one")
    return dict(zip(rates.names, largest.tolist(), strict=True))


def _norms(direction: Direction, rates: Rates, device: torch.device) -> Tensor:
    """Norm of each rate's direction, over all modules that share the rate."""
    parts = {name: change.value.float().norm() for name, change in direction.items()}
    if rates.prior:
        bound = math.sqrt(len(rates.prior)) * math.log(1 + 1 / SMOOTHING)
        parts[LABEL_PRIOR] = torch.tensor(bound, device=device)
    norms = [torch.stack([parts[name] for name in members]).norm() for members in rates.members.values()]
    for name, norm in zip(rates.names, norms, strict=True):
        if not norm.isfinite():
            raise BatchError(f"the direction of {name!r} is not finite: check the model and its inputs")
    return torch.stack(norms)
