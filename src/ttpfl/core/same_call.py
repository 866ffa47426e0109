"""A layer that gets the same input in both passes over a batch, and so needs to be computed only once.

That is the last convolution or linear layer before the first statistic that moves, as the first convolution
of most networks. It is only a guess from the order of the network: an output is used again only if the layer
really gets the same input.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ttpfl.core.convolution import is_ordinary
from ttpfl.core.last_layer import Call

_WITHOUT_STATE = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


def layer_before(model: nn.Module, moving: Collection[nn.Module]) -> nn.Module | None:
    """The last plain convolution or linear layer before the first of the moving layers, if there is one.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Conv2d(2, 2, 3), nn.BatchNorm2d(2))
    >>> layer_before(model, [model[3], model[1]])
    Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
    """
    found = None
    for layer in model.modules():
        if any(layer is other for other in moving):
            return found
        if _is_plain(layer):
            found = layer
    return None


def _is_plain(layer: nn.Module) -> bool:
    return (
        any(type(layer).forward is kind.forward for kind in _WITHOUT_STATE)
        and "forward" not in vars(layer)
        and "weight" in layer._parameters  # not computed from other tensors
        and not (layer._forward_hooks or layer._forward_pre_hooks)
    )


@contextmanager
def keeping(layer: nn.Module | None, calls: list[Call]) -> Iterator[None]:
    """While open, add the first call of `layer`, if any, to `calls`."""

    def keep(layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        # Without versions, as in inference mode, changes in place would not be noticed.
        noticed = args and not (args[0].is_inference() or output.is_inference())
        if noticed and not calls and is_ordinary(output):
            calls.append(Call.of(args[0], output))

    handle = None if layer is None else layer.register_forward_hook(keep)
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


@contextmanager
def answering(layer: nn.Module | None, calls: list[Call]) -> Iterator[None]:
    """While open, `layer` returns the kept output instead of computing the same again.

    `calls` is emptied: the network may change the output in place, so it is returned only once.
    """
    if layer is None or not calls:
        yield
        return
    compute = layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        call = calls.pop() if calls else None
        if call is not None and len(args) == 1 and not kwargs and call.answers(args[0]):
            return call.output
        return compute(*args, **kwargs)

    layer.__dict__["forward"] = forward
    try:
        yield
    finally:
        del layer.__dict__["forward"]
