"""Whether a stream changed: its next batch points elsewhere than all batches before."""

from math import sqrt
from statistics import fmean

import torch

from ttpfl.core.direction import Change, Direction, Objective, probe
from ttpfl.core.guard import Limits
from ttpfl.core.influence import batch_size, selected
from ttpfl.core.inputs import Inputs
from ttpfl.core.twin import Twin

MARGIN = 1.1
"""New clients may vary more than source clients by this factor."""
FEWEST = 8
"""A smaller batch is not divided into halves."""


def jumps(direction: Direction, mean: Direction) -> dict[str, float]:
    """Distance of each module's direction from the mean of the stream so far."""
    return {name: _distance(change, mean[name]) for name, change in direction.items() if name in mean}


def jump_of_halves(twin: Twin, inputs: Inputs, objective: Objective) -> dict[str, float]:
    """What `jumps` would be between two batches, estimated from the halves of a single one.

    A mean over half the samples has twice the variance.
    """
    count = batch_size(inputs)
    if count < FEWEST:
        return {}
    first, second = (
        probe(twin, selected(inputs, rows), objective).direction for rows in torch.arange(count).chunk(2)
    )
    return {name: jump / sqrt(2) for name, jump in jumps(second, first).items()}


def changed(direction: Direction, mean: Direction, limits: Limits, samples: int) -> bool:
    """Whether modules are on average further from the mean than they ever were at most source clients.

    Args:
        direction: of a batch.
        mean: of the stream so far; empty before its first batch.
        limits: those of the source clients.
        samples: number of samples in the batch. A mean over fewer samples varies more.
    """
    factor = max(1.0, sqrt(limits.batch_size / samples))
    found = jumps(direction, mean) if limits.jumps else {}
    ratios = [found[name] / limit for name, limit in limits.jumps.items() if limit > 0 and name in found]
    return bool(ratios) and fmean(ratios) > MARGIN * factor


def _distance(change: Change, mean: Change) -> float:
    if change.taps != mean.taps:  # images of another size use other taps
        return float((change.whole() - mean.whole()).double().norm())
    return float((change.value - mean.value).double().norm())
