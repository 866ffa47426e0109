"""Bounded influence: no batch and no sample moves a stream further than those of source clients did.

A sample whose size (the root mean square of its values) is far from the usual one of its stream is left out,
such as a picture that was not normalised. The direction of a batch is shortened to a limit for each module.
"""

from collections import deque
from math import inf, isfinite, log, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from ttpfl.core.direction import Direction
from ttpfl.core.guard import Limits
from ttpfl.core.inputs import Inputs

QUANTILE = 0.9
"""Of the source clients' largest values."""
MARGIN = 2.0
"""New clients may go further than source clients by this factor."""
SMALLEST_SPREAD = log(2)
"""A sample half or twice as large as usual is never left out."""
WINDOW = 32
"""Recent samples whose median size is the usual one."""
LARGE = 8
"""A batch of so many samples shows itself what is usual, so that a stream may change."""
FEWEST = 3
"""With fewer samples, the usual size is not known."""


def log_sizes(inputs: Inputs) -> Tensor | None:
    """Logarithm of each sample's root mean square; None if the inputs are no floating-point numbers.

    >>> log_sizes(Inputs((torch.tensor([[1.0, -1.0], [10.0, 10.0]]),), {})).exp()
    tensor([ 1., 10.])
    """
    count = batch_size(inputs)
    parts = [
        tensor.reshape(count, -1).float()
        for _, tensor in inputs.tensors()
        if tensor.ndim > 1 and len(tensor) == count and tensor.is_floating_point() and tensor.numel()
    ]
    if not parts:
        return None
    # Divided by the largest value first, since squares may overflow.
    largest = torch.stack([part.abs().amax(1) for part in parts]).amax(0).clamp(min=1e-30)
    squares = torch.stack([(part / largest[:, None]).square().sum(1) for part in parts]).sum(0)
    mean_square = squares / sum(part.shape[1] for part in parts)
    return largest.log() + mean_square.clamp(min=1e-30).log() / 2


def batch_size(inputs: Inputs) -> int:
    """Number of samples in checked inputs."""
    return next(len(tensor) for _, tensor in inputs.tensors() if tensor.ndim)


class Seen(NamedTuple):
    """A batch, divided into samples to learn from and outliers."""

    inputs: Inputs
    """Of the samples to learn from."""
    sizes: Tensor | None = None
    """Log sizes of all samples, if known."""
    rows: Tensor | None = None
    """Indices of the samples to learn from; None if there are no outliers."""

    @property
    def left_out(self) -> int:
        """Number of outliers."""
        return 0 if self.rows is None or self.sizes is None else len(self.sizes) - len(self.rows)

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to learn from."""
        return self.rows is not None and not len(self.rows)

    def of(self, logits: Tensor) -> Tensor:
        """The logits of the samples to learn from."""
        return logits if self.rows is None else logits[self.rows]


class Influence:
    """Limits what one stream learns from; without limits, it changes nothing.

    Args:
        limits: those of the source clients.
        online: whether the usual size is that of recent samples; else of the batch alone.
    """

    def __init__(self, limits: Limits | None, online: bool) -> None:
        self._limits, self._online = limits, online
        self._recent = deque[float](maxlen=WINDOW)

    def clear(self) -> None:
        """Forget the stream."""
        self._recent.clear()

    def seen(self, inputs: Inputs) -> Seen:
        """Divide a batch into usual samples and outliers; nothing is remembered yet."""
        sizes = None if self._limits is None else log_sizes(inputs)
        if self._limits is None or sizes is None:
            return Seen(inputs)
        alone = not self._online or len(sizes) >= LARGE
        known = sizes if alone else torch.cat([sizes.new_tensor(self._recent), sizes])
        usual = (sizes - known.median()).abs() <= self._limits.spread
        if len(known) < FEWEST or bool(usual.all()):
            return Seen(inputs, sizes)
        rows = usual.nonzero()[:, 0]
        return Seen(selected(inputs, rows), sizes, rows)

    def remember(self, seen: Seen, direction: Direction) -> bool:
        """Remember a batch, and shorten its direction in place; returns whether it was too long."""
        if self._limits is None:
            return False
        if self._online and seen.sizes is not None:
            self._recent.extend(seen.sizes.tolist())
        # A mean over fewer samples varies more.
        factor = max(1.0, sqrt(self._limits.batch_size / max(1, batch_size(seen.inputs))))
        longer = False
        for name, change in direction.items():
            limit = factor * self._limits.norms.get(name, inf)
            norm = float(change.value.double().norm())
            if isfinite(norm) and norm > limit:
                change.value.mul_(limit / norm)
                longer = True
        return longer


def selected(inputs: Inputs, rows: Tensor) -> Inputs:
    """The inputs of some samples; tensors that are not per sample stay.

    >>> selected(Inputs((torch.tensor([[1.0], [2.0]]),), {}), torch.tensor([1])).args[0]
    tensor([[2.]])
    """
    count = batch_size(inputs)
    return inputs.map(lambda tensor: tensor[rows] if tensor.ndim and len(tensor) == count else tensor)


class Extremes(NamedTuple):
    """The largest values of source clients, one row per client."""

    norms: Tensor
    """Of each module's direction."""
    jumps: Tensor
    """Distance of each module's direction from the mean of the batches before; zero with a single batch."""
    spread: Tensor
    """Distance of a sample's log size from the median."""
    batch_size: Tensor


def limits_of(names: list[str], extremes: Extremes) -> Limits:
    """Limits from the extremes of source clients, for these modules."""
    norms, spread = (_quantile(part) * MARGIN for part in (extremes.norms, extremes.spread))
    long = extremes.jumps[extremes.jumps.any(1)]
    jumps = dict(zip(names, _quantile(long).tolist(), strict=True)) if len(long) else {}
    return Limits(
        dict(zip(names, norms.tolist(), strict=True)),
        jumps,
        max(SMALLEST_SPREAD, float(spread)),
        int(extremes.batch_size.max()),
    )


def _quantile(largest: Tensor) -> Tensor:
    return torch.quantile(largest.double(), QUANTILE, dim=0)
