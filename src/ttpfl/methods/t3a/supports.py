"""Features that stand for their classes; for T3A."""

from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ttpfl.core.statistics import at_least_float32


class Supports(NamedTuple):
    """Normalised features of each class, of which the surest are kept.

    >>> one = Supports.none(classes=2, size=2).joined(torch.eye(2), logits=torch.eye(2), keep=1)
    >>> one.joined(torch.tensor([[2.0, 0.0]]), logits=torch.tensor([[0.5, 0.0]]), keep=1).sums
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """

    sums: Tensor  # of each class's supports; where all are kept, that is all there is to know
    vectors: Tensor
    labels: Tensor
    entropy: Tensor

    @classmethod
    def none(cls, classes: int, size: int, device: torch.device | None = None) -> Self:
        """No supports, of features of this size."""
        sums = torch.zeros(classes, size, dtype=torch.float64, device=device)
        nobody = torch.zeros(0, device=device)
        return cls(sums, nobody.view(0, 1).expand(0, size), nobody.long(), nobody)

    def joined(self, features: Tensor, logits: Tensor, keep: int | None) -> Self:
        """With these features, for the classes that the logits say; `keep` per class, or all if None."""
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
    """Where the `count` lowest entropies of each class are; of equal ones the earlier."""
    order = entropy.argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by class, then by entropy
    sizes = labels.bincount(minlength=classes)
    rank = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[labels[order]]
    return order[rank < count]
