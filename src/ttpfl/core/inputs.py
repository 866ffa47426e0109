"""Batches of any structure, and clients that provide them."""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from ttpfl.errors import BatchError
from ttpfl.util.settings_kit import integer

LABEL_KEYS = ("labels", "label", "y")


class Inputs(NamedTuple):
    """Arguments of one call of the model."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every value that is not a tuple, list or dict, with a name for messages."""
        for index, value in enumerate(self.args):
            yield from _leaves_of(value, f"input {index}" if len(self.args) > 1 else "input")
        for key, value in self.kwargs.items():
            yield from _leaves_of(value, f"input {key!r}")

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor, with a name for messages."""
        return ((name, value) for name, value in self.leaves() if isinstance(value, Tensor))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """Apply `change` to every tensor and keep the structure."""
        return Inputs(*map_tensors(change, (self.args, self.kwargs)))

    @property
    def image_shapes(self) -> tuple[torch.Size, ...]:
        """Shapes of all images or feature maps, without the batch dimension."""
        return tuple(tensor.shape[1:] for _, tensor in self.tensors() if tensor.ndim == 4)

    @property
    def in_channels_last(self) -> bool:
        """Whether all images have this layout already, or there are none."""
        images = (tensor for _, tensor in self.tensors() if tensor.ndim == 4)
        return all(image.is_contiguous(memory_format=torch.channels_last) for image in images)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {t.dtype} {tuple(t.shape)}" for name, t in self.tensors())


def _leaves_of(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Mapping, tuple, list)):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves_of(item, f"{name}[{key!r}]")
    else:
        yield name, value


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Replace every tensor in nested tuples, lists and dicts by `change(tensor)`."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, MutableMapping):
        changed = copy.copy(value)  # keeps the class
        for key, item in value.items():
            changed[key] = map_tensors(change, item)
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(change, item) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(change, item) for item in value)
    return value


def checked(inputs: Inputs) -> Inputs:
    """Check that inputs are finite and not empty; return them without the caller's autograd state."""
    batch_size = next((len(tensor) for _, tensor in inputs.tensors() if tensor.ndim), None)
    for name, tensor in inputs.tensors():
        per_sample = tensor.ndim == 0 or len(tensor) == batch_size
        if per_sample and not all_finite(tensor):  # a mask of another shape may contain -inf
            fault = f"has NaN or Inf in sample {first_bad(tensor)}" if tensor.ndim else f"is {tensor.item()}"
            raise BatchError(f"{name} {fault}: clean or remove it; nothing was learned from this batch")
    if batch_size is None:
        raise BatchError("the batch has no tensor: pass the model's inputs as torch tensors")
    if batch_size == 0:
        raise BatchError(f"the batch is empty ({inputs}): pass at least one sample")
    return inputs.map(released)


def released(tensor: Tensor) -> Tensor:
    """Return `tensor` without the caller's autograd state; inference-mode tensors must be copied for that."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def all_finite(tensor: Tensor) -> bool:
    """Whether `tensor` has no NaN or Inf."""
    # A finite sum is a fast proof. The sum may overflow even if no element does.
    if not tensor.is_floating_point() or math.isfinite(tensor.detach().sum()):
        return True
    return bool(torch.isfinite(tensor).all())


def first_bad(tensor: Tensor) -> int:
    """Index of the first sample with NaN or Inf."""
    bad = ~torch.isfinite(tensor)
    return int((bad.flatten(1).any(1) if bad.ndim > 1 else bad).nonzero()[0])


def split_batch(batch: Any) -> tuple[Inputs, Tensor]:
    """Split a labelled batch into inputs and labels: `(x, y)`, `((x1, x2), y)`, `({...}, y)` or one dict."""
    if isinstance(batch, Mapping):
        key = next((key for key in LABEL_KEYS if key in batch), None)
        if key is None:
            raise BatchError(f"no labels among the keys {sorted(map(str, batch))}: use one of {LABEL_KEYS}")
        x: Any = {name: value for name, value in batch.items() if name != key}
        y = batch[key]
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        x, y = batch
    else:
        raise BatchError(f"a labelled batch is (x, y) or a dict with labels, not {type(batch).__name__}")
    if not isinstance(y, Tensor):
        raise BatchError(f"labels must be a torch tensor, not {type(y).__name__}")
    if isinstance(x, Mapping):
        return Inputs((), dict(x)), y
    return Inputs(tuple(x) if isinstance(x, (tuple, list)) else (x,), {}), y


Client = Dataset[Any] | Sequence[Any] | Mapping[str, Tensor] | DataLoader[Any]


def client_batches(client: Client, batch_size: int) -> Iterable[Any]:
    """Iterate over a client's batches in a fixed order, including the last, smaller one.

    A DataLoader is used as it is, with its own batch size and order.

    >>> [len(y) for x, y in client_batches((torch.zeros(5, 2), torch.zeros(5)), batch_size=2)]
    [2, 2, 1]
    """
    integer(1).check(BatchError, batch_size=batch_size)
    if isinstance(client, DataLoader):
        return client
    tensors = client_tensors(client)
    if tensors is not None:
        return _slices(tensors, batch_size)
    if not hasattr(client, "__getitem__") or not hasattr(client, "__len__"):
        raise BatchError(
            "a client is a map-style dataset, a pair of tensors (x, y) or a DataLoader, "
            f"not {type(client).__name__}"
        )
    return _collated(client, batch_size)


def client_tensors(client: Client) -> Any:
    """Return a client's data as a pair or mapping of tensors; None if it is not available as tensors.

    >>> client_tensors(TensorDataset(torch.zeros(2), torch.ones(2)))
    (tensor([0., 0.]), tensor([1., 1.]))
    """
    if isinstance(client, TensorDataset):
        *x, y = client.tensors
        return (x[0] if len(x) == 1 else tuple(x), y)
    pair = isinstance(client, (tuple, list)) and len(client) == 2 and isinstance(client[1], Tensor)
    return client if pair or isinstance(client, Mapping) else None


def common_length(tensors: Any) -> int:
    """Number of samples in a client's tensors."""
    lengths = {len(tensor) for _, tensor in Inputs((tensors,), {}).tensors()}
    if len(lengths) != 1:
        raise BatchError(f"a client's tensors must have the same length, got {sorted(lengths)}")
    return lengths.pop()


def _slices(client: Any, batch_size: int) -> Iterator[Any]:
    for start in range(0, common_length(client), batch_size):
        yield map_tensors(itemgetter(slice(start, start + batch_size)), client)


def _collated(dataset: Any, batch_size: int) -> Iterator[Any]:
    for start in range(0, len(dataset), batch_size):
        stop = min(start + batch_size, len(dataset))
        samples = [dataset[index] for index in range(start, stop)]
        try:
            yield default_collate(samples)
        except (RuntimeError, TypeError) as error:
            raise BatchError(
                f"samples {start} to {stop - 1} cannot be put into one batch: {error}. A client is a "
                "dataset of (x, y) samples, a pair of tensors (x, y) or a DataLoader"
            ) from error
