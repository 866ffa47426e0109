"""EATA's regulariser: parameters stay near their initial values, weighted by importance."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.core.inputs import Inputs, checked
from ttpfl.errors import MethodError
from ttpfl.methods.base import Labelled, Summary
from ttpfl.methods.learner import Learner
from ttpfl.methods.normalisation import batch_statistics

BATCHES = "batches"


def squared_gradients(learner: Learner, batches: Labelled) -> Summary:
    """The sum over batches of squared gradients, with the model's own predictions as labels."""
    squares = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in learner.learning.items()}
    count = 0
    for x, _ in batches:
        count += 1
        logits = learner.forward(checked(Inputs((x,), {})).args[0], batch_statistics)
        gradients = learner.gradients(F.cross_entropy(logits, logits.detach().argmax(1)))
        for square, gradient in zip(squares.values(), gradients, strict=True):
            square += gradient.double() ** 2
    return {**{name: s.detach() for name, s in squares.items()}, BATCHES: torch.tensor(float(count))}


def importance(summary: Summary, learning: Mapping[str, nn.Parameter]) -> list[Tensor]:
    """The importance of each parameter, from the sum of the source clients' summaries."""
    values = [(summary[n] / summary[BATCHES]).to(p) for n, p in learning.items() if n in summary]
    if [value.shape for value in values] != [p.shape for p in learning.values()]:
        raise MethodError("the summary belongs to another network: gather summaries with this model")
    return values


def drift(importance: Sequence[Tensor], current: Sequence[Tensor], initial: Sequence[Tensor]) -> Tensor:
    """The squared distance of parameters from their initial values, weighted by importance.

    >>> drift([torch.tensor([2.0, 0.0])], [torch.tensor([3.0, 9.0])], [torch.tensor([1.0, 1.0])])
    tensor(8.)
    """
    terms = [(f * (p - p0) ** 2).sum() for f, p, p0 in zip(importance, current, initial, strict=True)]
    return torch.stack(terms).sum()
