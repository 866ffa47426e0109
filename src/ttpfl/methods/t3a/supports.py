"""Features that represent their classes; for T3A."""

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ttpfl.core.statistics import at_least_float32


class Supports(NamedTuple):
    """Normalised features of each class, limited to the most confident.

    >>> supports = Supports.none(classes=2, size=2).joined(torch.eye(2), logits=torch.eye(2), keep=1)
    >>> supports.joined(torch.tensor([[2.0, 0.0]]), logits=torch.tensor([[0.5, 0.0]]), keep=1).sums
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """

    sums: Tensor  # of each class's supports; the other fields stay empty if all supports are kept
    vectors: Tensor
    labels: Tensor
    entropy: Tensor

    @classmethod
    def none(cls, classes: int, size: int, device: torch.device | None = None) -> Self:
        """No supports; features have this size."""
        sums = torch.zeros(classes, size, dtype=torch.float64, device=device)
        empty = torch.zeros(0, device=device)
        return cls(sums, empty.view(0, 1).expand(0, size), empty.long(), empty)

    def joined(self, features: Tensor, logits: Tensor, keep: int | None) -> Self:
        """Add features of the predicted classes; keep `keep` supports per class, or all if None."""
        vectors, labels = F.normalize(at_least_float32(features), dim=1), logits.argmax(1)
        if keep is None:
            return self._replace(sums=self.sums.index_add(0, labels, vectors.double()))
        entropy = torch.special.entr(at_least_float32(logits).softmax(1)).sum(1)
        vectors, labels = torch.cat([self.vectors, vectors]), torch.cat([self.labels, labels])
        entropy = torch.cat([self.entropy, entropy])
        best = _lowest(entropy, labels, keep, len(self.sums))
        sums = torch.zeros_like(self.sums).index_add(0, labels[best], vectors[best].double())
        return self._replace(sums=sums, vectors=vectors[best], labels=labels[best], entropy=entropy[best])


def _lowest(entropy: Tensor, labels: Tensor, count: int, classes: int) -> Tensor:
    """The positions of the `count` lowest entropies of each class; ties go to the earlier."""
    order = entropy.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by class, then by entropy
    sizes = labels.bincount(minlength=classes)
    rank = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[labels[order]]
    return order[rank < count]
