"""Metrics of a client's predictions."""

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 15  # of confidence, as is usual for the calibration error


def figures(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Compare predictions with labels.

    >>> figures(torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]))["accuracy"]
    0.5
    """
    logits = logits.double()
    probabilities = logits.softmax(1)
    correct = (logits.argmax(1) == labels).double()
    return {
        "accuracy": float(correct.mean()),
        "loss": float(F.cross_entropy(logits, labels)),
        "ece": calibration_error(probabilities.max(1).values, correct),
        "entropy": float(torch.special.entr(probabilities).sum(1).mean()),
    }


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """The mean gap between confidence and accuracy over bins of equal width, weighted by their samples.

    >>> calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([1.0, 0.0]))
    0.25
    """
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, (confidence - correct).double())
    return float(gaps.abs().sum() / len(correct))
