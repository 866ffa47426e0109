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
        **class_figures(logits.argmax(1), labels, logits.shape[1]),
        "loss": float(F.cross_entropy(logits, labels)),
        "ece": calibration_error(probabilities.max(1).values, correct),
        "entropy": float(torch.special.entr(probabilities).sum(1).mean()),
    }


def class_figures(predicted: Tensor, labels: Tensor, classes: int) -> dict[str, float]:
    """Means over classes, in which rare classes count as much as frequent ones.

    As usual, balanced accuracy is the mean recall over the classes among the labels, and macro-F1 the mean F1
    over the classes among the labels or the predictions: a predicted class that the client lacks counts as 0.

    >>> class_figures(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 2]), classes=4)
    {'balanced_accuracy': 0.5, 'macro_f1': 0.333...}
    """
    actual, chosen = (torch.bincount(one, minlength=classes).double() for one in (labels, predicted))
    right = torch.bincount(labels[predicted == labels], minlength=classes).double()
    recall, f1 = right / actual, 2 * right / (actual + chosen)  # NaN for 0 / 0
    return {
        "balanced_accuracy": float(recall[actual > 0].mean()),
        "macro_f1": float(f1[actual + chosen > 0].mean()),
    }


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """The mean gap between confidence and accuracy over bins of equal width, weighted by their samples.

    >>> calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([1.0, 0.0]))
    0.25
    """
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, (confidence - correct).double())
    return float(gaps.abs().sum() / len(correct))
