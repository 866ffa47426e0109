"""Passes of a method's own model over the batches of a stream."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ttpfl.arithmetic import with_batch_norm
from ttpfl.inputs import Inputs
from ttpfl.methods.normalisation import BatchNorm
from ttpfl.runner import Runner


class Passes:
    """A runner for models of one argument, with another BatchNorm if wanted.

    >>> import torch
    >>> from ttpfl.methods.normalisation import batch_statistics
    >>> model = nn.BatchNorm1d(1, affine=False).eval()
    >>> Passes(model).fast(torch.tensor([[-2.0], [2.0]]), batch_statistics)
    tensor([[-1.0000],
            [ 1.0000]])
    """

    def __init__(self, model: nn.Module) -> None:
        self._runner = Runner(model)

    def plain(self, batch: Any) -> Tensor:
        """The logits by the model's own operations."""
        return self._runner.plain(Inputs((batch,), {}))

    def fast(self, batch: Any, batch_norm: BatchNorm = F.batch_norm) -> Tensor:
        """The logits in the fastest way known, with `batch_norm` wherever the model calls torch's."""
        return self._runner.fast(Inputs((batch,), {}), with_batch_norm(batch_norm))
