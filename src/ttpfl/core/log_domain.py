"""Variances that move in the log domain: they stay positive for any rate, so the loss has no cliff at zero.

A variance v moves to (v + FLOOR) * exp(rate * ratio) - FLOOR, where `ratio` is the logarithm of the batch's
variance over the stored one, both with `FLOOR` added. Rate 0 keeps the stored variance, and rate 1 gives the
batch's, as in the linear rule.
"""

import torch
from torch import Tensor

from ttpfl.core.statistics import at_least_float32

FLOOR = 1e-5
"""Added to variances, so that those of constant channels have a logarithm; the usual eps of BatchNorm."""
LARGEST_EXPONENT = 60.0
"""Limit for e^x, so that rates of any size give finite variances in single precision."""


def log_ratio(batch: Tensor, stored: Tensor) -> Tensor:
    """Logarithm of the batch's variances over the stored ones.

    >>> log_ratio(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]))
    tensor([0., 0.])
    """
    return _logarithm(batch) - _logarithm(stored)


def _logarithm(variances: Tensor) -> Tensor:
    return at_least_float32(variances).clamp(min=0).add_(FLOOR).log_()


def moved_in_log_domain(stored: Tensor, ratio: Tensor, rate: Tensor) -> Tensor:
    """The variances after moving; finite in the type of `stored`.

    >>> moved_in_log_domain(torch.tensor([1.0]), torch.tensor([4.0]).log(), torch.tensor(0.5))
    tensor([2.0000])
    """
    factor = (rate * ratio).clamp_(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp_()
    moved = factor.mul_(at_least_float32(stored).clamp(min=0).add_(FLOOR)).sub_(FLOOR)
    return moved.clamp_(min=0, max=torch.finfo(stored.dtype).max)


def slope_in_log_domain(moved: Tensor, ratio: Tensor) -> Tensor:
    """Derivative of the moved variances in the rate; zero where they stop at zero."""
    return torch.where(moved > 0, (at_least_float32(moved) + FLOOR) * ratio, 0.0)
