"""What keeps parameters near where they were, the more the more they matter there; for EATA."""

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
    """Of each parameter, from the sum of the source clients' summaries."""
    found = [(summary[n] / summary[BATCHES]).to(p) for n, p in learning.items() if n in summary]
    if [f.shape for f in found] != [p.shape for p in learning.values()]:
        raise MethodError("the summary is of another network: make one for this model")
    return found


def drift(importance: Sequence[Tensor], now: Sequence[Tensor], fresh: Sequence[Tensor]) -> Tensor:
    """How far parameters are from where they were, each squared distance by its importance.

    >>> drift([torch.tensor([2.0, 0.0])], [torch.tensor([3.0, 9.0])], [torch.tensor([1.0, 1.0])])
    tensor(8.)
    """
    terms = [(f * (p - p0) ** 2).sum() for f, p, p0 in zip(importance, now, fresh, strict=True)]
    return torch.stack(terms).sum()
