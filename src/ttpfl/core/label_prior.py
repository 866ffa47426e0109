"""The label prior as a module: logits move towards the classes that are frequent at a client.

Its direction is the logarithm of the client's class frequencies over those of the source clients, both as
the global model predicts them; it is added to the logits, times its rate. What a client remembers of its
stream are *soft counts*: the sum of the predicted probabilities of each class.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ttpfl.core.statistics import at_least_float32
from ttpfl.errors import BatchError

LABEL_PRIOR = "label_prior"
"""Name of the module."""
PSEUDO_COUNTS = 40.0
"""Number of samples after which half of the difference to the source clients is believed."""
SMOOTHING = 0.01
"""Added to frequencies, so that the direction is at most log(1 + 1 / SMOOTHING)."""


def soft_counts(logits: Tensor, classes: int) -> Tensor:
    """Sum of the predicted probabilities of each class, over the samples of a batch.

    >>> soft_counts(torch.tensor([[0.0, 0.0], [0.0, 0.0], [99.0, 0.0]]), classes=2)
    tensor([2., 1.], dtype=torch.float64)
    """
    if logits.ndim != 2 or logits.shape[1] != classes:
        raise BatchError(
            f"the model returns logits of shape {tuple(logits.shape)}, but the rates have a label prior of "
            f"{classes} classes: learn rates for this model"
        )
    return at_least_float32(logits.detach()).softmax(1).double().sum(0)


def prior_direction(counts: Tensor, source: Sequence[float]) -> Tensor:
    """Logarithm of a client's class frequencies over the source clients'.

    Few samples show little: the source clients' frequencies count as `PSEUDO_COUNTS` samples of the client.

    Args:
        counts: soft counts of the client's samples so far.
        source: frequencies of the source clients; zeros if they are not known yet.

    >>> prior_direction(torch.tensor([50.0, 50.0]), [0.5, 0.5])
    tensor([0., 0.])
    >>> prior_direction(torch.tensor([90.0, 10.0]), [0.5, 0.5]).round(decimals=2)
    tensor([ 0.4400, -0.8200])
    """
    base = torch.tensor(source, dtype=counts.dtype, device=counts.device)
    if not bool(base.any()):
        return torch.zeros_like(counts, dtype=torch.float32)
    frequencies = (counts + PSEUDO_COUNTS * base) / (counts.sum() + PSEUDO_COUNTS)
    return ((frequencies + SMOOTHING) / (base + SMOOTHING)).log().float()


def with_offset(logits: Tensor, offset: Tensor | None) -> Tensor:
    """Logits with a moved label prior, if any."""
    return logits if offset is None else logits + offset.to(logits.dtype)
