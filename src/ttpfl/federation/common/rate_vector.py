"""What travels in a search for rates: one number per rate, then one per class if there is a label prior.

The server sends the rates and `Rates.prior`, which is zero as long as nobody knows it. A client returns the
slope of its loss in each rate, and its own mean prediction.
"""

import torch
from torch import Tensor

from ttpfl.core.rates import Rates


def packed(rates: Rates) -> Tensor:
    """The vector of some rates."""
    return torch.cat([rates.values, rates.values.new_tensor(rates.prior)])


def unpacked(initial: Rates, vector: Tensor) -> Rates:
    """The rates of a vector; its part about the label prior may be left out, if that does not change."""
    count = len(initial.values)
    rates = initial.with_values(vector[:count].clone())
    return rates.with_prior(vector[count:].tolist()) if len(vector) > count else rates
