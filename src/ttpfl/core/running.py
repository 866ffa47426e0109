"""The direction of a stream: that of its last batch, or the mean over all batches so far."""

from collections.abc import Sequence

from ttpfl.core.direction import Direction, absorb
from ttpfl.core.label_prior import LABEL_PRIOR, prior_direction


class RunningDirection:
    """What a client remembers of its stream, and the direction that follows from it.

    Args:
        online: whether to use all batches so far; else only the last one.
        assumed: soft counts of the label prior before the first sample; empty without it.
        decay: weight of the past in an exponential mean; None for the plain mean.
    """

    def __init__(self, online: bool, assumed: Sequence[float] = (), decay: float | None = None) -> None:
        self._online, self._assumed, self._decay = online, assumed, decay
        self.batches = 0
        self.mean: Direction = {}
        """Mean direction of every tensor, and the soft counts of the label prior."""

    def add(self, direction: Direction) -> None:
        """Add the direction of a batch, which is not changed."""
        self.batches += 1
        direction = _with_counts(direction)
        if not self._online:
            self.mean = direction
        elif self.batches == 1:
            self.mean = {name: part._replace(value=part.value.clone()) for name, part in direction.items()}
        else:
            self._absorb(direction)

    def current(self) -> Direction:
        """The direction to move along."""
        if LABEL_PRIOR not in self.mean:
            return self.mean
        counts = self.mean[LABEL_PRIOR]
        value = prior_direction(counts.value, self._assumed)
        return {**self.mean, LABEL_PRIOR: counts._replace(value=value)}

    def clear(self) -> None:
        """Forget everything."""
        self.mean, self.batches = {}, 0

    def _absorb(self, direction: Direction) -> None:
        weight = 1 / self.batches
        if self._decay is not None:
            weight = max(weight, 1 - self._decay)
        tensors = {name: part for name, part in direction.items() if name != LABEL_PRIOR}
        absorb(self.mean, tensors, weight)
        if LABEL_PRIOR in direction:  # samples add up, so that batches of any size count as they should
            counts = self.mean[LABEL_PRIOR].value
            if self._decay is not None:
                counts.mul_(self._decay)
            counts.add_(direction[LABEL_PRIOR].value)


def _with_counts(direction: Direction) -> Direction:
    """The direction of a batch with soft counts in place of predictions."""
    if LABEL_PRIOR not in direction:
        return direction
    part = direction[LABEL_PRIOR]
    return {**direction, LABEL_PRIOR: part._replace(value=part.value.double().sum(0))}
