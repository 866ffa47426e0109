"""What a method costs in time: one definition for comparisons, reports and benchmarks."""

import time
from collections.abc import Sequence

from torch import Tensor, nn

from ttpfl.arithmetic import channels_last
from ttpfl.evaluation.evaluator import plain

COST = (
    "The cost of a method is the time it takes for a stream, divided by the time the plain model takes for "
    "the same stream: one thread, the same batches, images channels last in memory."
)
"""The definition in words, wherever costs are shown."""


def in_plain_passes(seconds: float, model: nn.Module, batches: Sequence[Tensor]) -> float:
    """The cost of a method that took so many seconds for these batches.

    The plain model gets them in the memory layout that methods compute in. With small convolutions on a CPU
    it is about twice as fast as the usual one, in which every method would look half as expensive.

    >>> import torch
    >>> in_plain_passes(0.0, nn.Conv2d(3, 4, 3).eval(), [torch.zeros(2, 3, 8, 8)])
    0.0
    """
    model_alone = plain(model)
    relaid = [channels_last(batch) for batch in batches]
    begin = time.perf_counter()
    for batch in relaid:
        model_alone(batch)
    return seconds / (time.perf_counter() - begin)
