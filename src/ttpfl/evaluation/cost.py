"""The reference time of a method's cost, which `ttpfl.results.schema.COST` defines."""

import time
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from ttpfl.core.torch_overrides import channels_last
from ttpfl.evaluation.evaluator import plain


def plain_seconds(
    model: nn.Module, batches: Sequence[Tensor], clock: Callable[[], float] = time.perf_counter
) -> float:
    """The time of the unadapted model for a stream, in the memory layout of methods.

    For small convolutions on a CPU, that layout is about twice as fast as torch's default, with which every
    method would seem half as expensive. The faster of two passes counts, since other load only slows down.

    >>> import torch
    >>> plain_seconds(nn.Conv2d(3, 4, 3).eval(), [torch.zeros(2, 3, 8, 8)]) > 0
    True
    """
    predict = plain(model)
    batches = [channels_last(batch) for batch in batches]
    seconds = []
    for _ in range(2):
        start = clock()
        for batch in batches:
            predict(batch)
        seconds.append(clock() - start)
    return min(seconds)
