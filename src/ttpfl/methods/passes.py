"""Passes through a private model, in the fastest way known, with another BatchNorm if wanted."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ttpfl.arithmetic import FastLayout, channels_last
from ttpfl.convolution import part_that_sees_data
from ttpfl.errors import BatchError, TtpflError
from ttpfl.inputs import Inputs, map_tensors
from ttpfl.methods.normalisation import BatchNorm
from ttpfl.statistics import torch_batch_norm

T = TypeVar("T")


class Passes(Generic[T]):
    """Runs a function of a batch, such as a model, on a copy of the batch in a fast memory layout.

    Rounding errors are of the same size as the plain model's, but not the same ones.

    >>> model = torch.nn.BatchNorm1d(1, affine=False).eval()
    >>> from ttpfl.methods.normalisation import batch_statistics
    >>> Passes(model)(torch.tensor([[-2.0], [2.0]]), batch_statistics)
    tensor([[-1.0000],
            [ 1.0000]])
    """

    def __init__(self, run: Callable[[Any], T]) -> None:
        self._run = run
        self._relaid = True  # until a pass shows that the model depends on the layout

    def __call__(self, batch: Any, batch_norm: BatchNorm = F.batch_norm) -> T:
        """The function's value, with `batch_norm` wherever it calls torch's."""
        if self._relaid:
            try:
                return self._pass(batch, channels_last, batch_norm)
            except BatchError:
                result = self._pass(batch, Tensor.clone, batch_norm)
                self._relaid = False
                return result
        return self._pass(batch, Tensor.clone, batch_norm)

    def _pass(self, batch: Any, lay_out: Callable[[Tensor], Tensor], batch_norm: BatchNorm) -> T:
        try:
            with _Layout(lay_out is channels_last, batch_norm):
                return self._run(map_tensors(lay_out, batch))
        except (TtpflError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError) as error:
            raise BatchError(
                f"the model cannot process this batch ({Inputs((batch,), {})}): {error}"
            ) from error


class _Layout(FastLayout):
    def __init__(self, relaid: bool, batch_norm: BatchNorm) -> None:
        super().__init__(part_that_sees_data, relaid)
        self._rules[F.batch_norm] = batch_norm
        self._rules[torch.batch_norm] = partial(torch_batch_norm, batch_norm)
