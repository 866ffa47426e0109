"""The direction of a stream: that of its last batch, or the mean over all batches so far."""

from ttpfl.core.direction import Direction, absorb


class RunningDirection:
    """The mean direction of a client's batches.

    Args:
        online: whether to use all batches so far; else only the last one.
        decay: weight of the past in an exponential mean; None for the plain mean.
    """

    def __init__(self, online: bool, decay: float | None = None) -> None:
        self._online, self._decay = online, decay
        self.batches = 0
        self.mean: Direction = {}
        """The direction to move along."""

    def add(self, direction: Direction) -> None:
        """Add the direction of a batch, which is not changed."""
        self.batches += 1
        if not self._online:
            self.mean = direction
        elif self.batches == 1:
            self.mean = {name: part._replace(value=part.value.clone()) for name, part in direction.items()}
        else:
            weight = 1 / self.batches
            if self._decay is not None:
                weight = max(weight, 1 - self._decay)
            absorb(self.mean, direction, weight)

    def clear(self) -> None:
        """Forget everything."""
        self.mean, self.batches = {}, 0
