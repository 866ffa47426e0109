"""Finding the logits in a model's output."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from ttpfl.errors import BatchError

Readout = Callable[[Any], Tensor]
"""Maps a model's output to logits."""


def logits_of(output: Any) -> Tensor:
    """Return the logits in a model's output; raise a BatchError if it is not clear where they are.

    A tensor is returned as it is. Otherwise `logits` is used, as an attribute or a key, as in the outputs of
    Hugging Face models. For a tuple, list or dataclass without `logits`, it is the first tensor that has a
    dimension, so that a loss in front is skipped.

    >>> import torch
    >>> logits_of({"hidden": torch.zeros(2, 5), "logits": torch.zeros(2, 3)}).shape
    torch.Size([2, 3])
    >>> logits_of((torch.tensor(0.5), torch.zeros(2, 3), torch.zeros(2, 5))).shape
    torch.Size([2, 3])
    >>> logits_of({"scores": torch.zeros(2, 3)})
    Traceback (most recent call last):
        ...
    ttpfl.errors.BatchError: the model's output is a dict without 'logits' (it has scores): pass logits=...
    """
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    logits = named if isinstance(named, Tensor) else _first_tensor(output)
    if logits is None:
        raise BatchError(
            f"the model's output is a {type(output).__name__}{_keys(output)}: pass logits=, a function from "
            "the output to logits, or wrap the model so that it returns a tensor"
        )
    return logits


def _first_tensor(output: Any) -> Tensor | None:
    values: Iterable[Any] = ()
    if isinstance(output, (tuple, list)):
        values = output
    elif is_dataclass(output):
        values = (getattr(output, entry.name, None) for entry in fields(output))
    return next((value for value in values if isinstance(value, Tensor) and value.ndim), None)


def _keys(output: Any) -> str:
    if not isinstance(output, Mapping):
        return ", not a tensor"
    return f" without 'logits' (it has {', '.join(map(str, output)) or 'nothing'})"
