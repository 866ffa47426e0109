"""Small tensors as one long tensor: a few large operations take less time than hundreds of small ones."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def at_once(function: Callable[..., Tensor], *columns: Sequence[Tensor]) -> list[Tensor]:
    """`list(map(function, *columns))` for a function of single elements.

    Args:
        function: from one tensor per column to a tensor, element by element.
        columns: lists of tensors, one list per argument.

    >>> at_once(torch.add, [torch.ones(2), torch.ones(3)], [torch.zeros(2), torch.ones(3)])
    [tensor([1., 1.]), tensor([2., 2., 2.])]
    """
    one_type = all(len({(tensor.dtype, tensor.device) for tensor in column}) == 1 for column in columns)
    one_shape = all(len({tensor.shape for tensor in row}) == 1 for row in zip(*columns, strict=True))
    if len(columns[0]) < 2 or not one_type or not one_shape:
        return list(map(function, *columns))
    joined = function(*(torch.cat([tensor.flatten() for tensor in column]) for column in columns))
    shapes = [tensor.shape for tensor in columns[0]]
    return [
        part.view(shape)
        for part, shape in zip(joined.split([s.numel() for s in shapes]), shapes, strict=True)
    ]
