"""What a method costs in time, as `ttpfl.results.schema.COST` defines it."""

import time
from collections.abc import Sequence

from torch import Tensor, nn

from ttpfl.core.torch_overrides import channels_last
from ttpfl.evaluation.evaluator import plain


def plain_seconds(model: nn.Module, batches: Sequence[Tensor]) -> float:
    """How long the plain model takes for a stream, in the memory layout that methods compute in.

    With small convolutions on a CPU that is about twice as fast as torch's default layout, in which every
    method would look half as expensive. A busy machine only ever makes a pass slower, so that the faster of
    two passes counts.

    >>> import torch
    >>> plain_seconds(nn.Conv2d(3, 4, 3).eval(), [torch.zeros(2, 3, 8, 8)]) > 0
    True
    """
    model_alone = plain(model)
    in_channels_last = [channels_last(batch) for batch in batches]
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        for batch in in_channels_last:
            model_alone(batch)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
