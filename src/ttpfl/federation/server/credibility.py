"""How much source clients differ in their classes: the soft counts of `Rates.prior`.

The mean prediction of a new client's samples differs from that of the source clients because the client
differs, and by chance. How far to believe it follows from the variance between source clients and the
variance within one: the best linear estimate of the client's frequencies is to count the source clients'
frequencies as `within / between` further samples (Bühlmann, 1967).
"""

from torch import Tensor

from ttpfl.federation.server.robust import Average

FEWEST, MOST = 1.0, 1e3
"""Limits of the assumed number of samples. Sites refuse larger numbers."""


def assumed_counts(predictions: Tensor, samples: Tensor, average: Average) -> Tensor:
    """The soft counts to assume before a client's first sample.

    Args:
        predictions: `weighted_prediction` of every client, one row per client.
        samples: number of samples of every client.
        average: how to average over clients.

    >>> import torch
    >>> alike = torch.tensor([[0.5, 0.5], [0.51, 0.49], [0.49, 0.51]])
    >>> assumed_counts(alike, torch.tensor([100, 100, 100]), Average())
    tensor([500., 500.])
    >>> different = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    >>> assumed_counts(different, torch.tensor([100, 100, 100]), Average())
    tensor([0.5000, 0.5000])
    """
    rows = predictions.double().clamp(min=0)
    labels = rows.sum(1, keepdim=True).clamp(min=1e-12)  # that one prediction is worth
    frequencies = rows / labels
    variances = (1 - frequencies.square().sum(1)) / labels[:, 0]  # of a client's predictions
    within, between = average.of_numbers(variances), 0.0
    if len(rows) > 1:
        between = float(average.variance(frequencies).sum()) - average.of_numbers(variances / samples)
    number = min(MOST, max(FEWEST, within / between)) if between > 0 else MOST
    mean = average.of_rows(frequencies)
    return (number * mean / mean.sum()).float()
