"""The label prior of a stream: which classes it had so far, and what that adds to the logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ttpfl.core.label_prior import prior_direction, soft_counts


class RunningPrior:
    """Soft counts of a client's samples, and the offset of the logits that follows from them.

    Args:
        assumed: soft counts before the first sample.
        online: whether all batches so far count; else only the last one.
        decay: factor for the counts of earlier batches; None for 1.

    >>> prior = RunningPrior([5.0, 5.0], online=True)
    >>> prior.applied(torch.zeros(20, 2), rate=torch.tensor(1.0))[0]
    tensor([0., 0.])
    >>> prior.counts
    tensor([10., 10.], dtype=torch.float64)
    """

    def __init__(self, assumed: Sequence[float], online: bool, decay: float | None = None) -> None:
        self._assumed, self._online, self._decay = assumed, online, decay
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.counts = torch.zeros(len(self._assumed), dtype=torch.float64)

    def applied(self, logits: Tensor, rate: Tensor) -> Tensor:
        """Remember a batch, and return its logits with their offset; differentiable in logits and rate.

        Args:
            logits: of the adapted model, without the label prior.
            rate: of the label prior.
        """
        counts = soft_counts(logits, self._assumed)
        if self._online:
            counts = counts + self.counts.to(counts.device) * (1 if self._decay is None else self._decay)
        self.counts = counts.detach()
        return logits + (rate * prior_direction(counts, self._assumed)).to(logits.dtype)

    def offset(self, rate: Tensor) -> Tensor:
        """What the samples so far add to the logits."""
        return rate * prior_direction(self.counts.to(rate.device), self._assumed)
