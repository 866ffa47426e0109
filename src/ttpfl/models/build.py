"""Build networks by name: the built-in ones and the user's own."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ttpfl.errors import ModelError
from ttpfl.models.mlp import mlp
from ttpfl.models.resnet import resnet18, resnet50
from ttpfl.models.sequence_transformer import sequence_transformer
from ttpfl.models.shallow_cnn import shallow_cnn
from ttpfl.models.signal_cnn import beat_cnn, signal_cnn
from ttpfl.util.settings_kit import check_known

MODELS: dict[str, Callable[..., nn.Module]] = {
    "shallow_cnn": shallow_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "signal_cnn": signal_cnn,
    "beat_cnn": beat_cnn,
    "mlp": mlp,
    "sequence_transformer": sequence_transformer,
}


def build(name: str, **arguments: Any) -> nn.Module:
    """Build a network by name, or your own by `package.module:function`.

    It gets those of `arguments` (such as `num_classes`, `image_size`, `input_shape`) that it has parameters
    for.

    >>> type(build("shallow_cnn", num_classes=10, image_size=28)).__name__
    'ShallowCNN'
    >>> type(build("torch.nn:Linear", in_features=2, out_features=3, num_classes=10)).__name__
    'Linear'
    """
    builder, parameters, offered = _builder(name), _parameters(name), list(arguments)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments = {key: value for key, value in arguments.items() if key in parameters}
    try:
        model = builder(**arguments)
    except (ModelError, OSError):
        raise
    except Exception as error:  # the user's code can fail in any way
        advice = f"; its parameters can be {', '.join(offered)}" if isinstance(error, TypeError) else ""
        cause = f"{type(error).__name__}: {error}{advice}"
        raise ModelError(f"the model {name!r} cannot be built: {cause}") from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"the model {name!r} is a {type(model).__name__}: it must be a torch.nn.Module")
    return model


def arguments_for(
    name: str, classes: int, image_size: tuple[int, int], shape: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Arguments of `build` for images of this height and width, or for other samples of this shape.

    >>> arguments_for("resnet18", 10, (20, 28))  # it ends with a mean over images of any size
    {'name': 'resnet18', 'num_classes': 10, 'image_size': 20}
    >>> arguments_for("shallow_cnn", 10, (20, 28))
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: images are 20x28, but the network shallow_cnn needs square ones: ...
    >>> arguments_for("signal_cnn", 6, (0, 0), (3, 128))
    {'name': 'signal_cnn', 'num_classes': 6, 'input_shape': [3, 128]}
    """
    if shape:
        return {"name": name, "num_classes": classes, "input_shape": list(shape), **_as_image(shape)}
    height, width = image_size
    if height != width and "image_size" in _parameters(name):
        side = max(image_size)
        raise ModelError(
            f"images are {height}x{width}, but the network {name} needs square ones: resize them, such as "
            f"with data.options.image_size={side} in a recipe "
            f"(--option image_size={side} or --image-size {side} in other commands)"
        )
    return {"name": name, "num_classes": classes, "image_size": height}


def _as_image(shape: tuple[int, ...]) -> dict[str, int]:
    """For networks of images: samples (channels, height, width) are like square images."""
    if len(shape) != 3 or shape[1] != shape[2]:
        return {}
    return {"in_channels": shape[0], "image_size": shape[1]}


def rebuild(description: Mapping[str, Any]) -> nn.Module:
    """Build a network as a file or a message describes it; it must not make us read other files.

    >>> rebuild({"name": "resnet18", "num_classes": 10, "weights": "somewhere.pth"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: a network's description names the file 'somewhere.pth': send weights separately
    """
    if not isinstance(description.get("name"), str):
        raise ModelError(f"a network's description is {dict(description)!r:.60}: it must name a network")
    if (path := description.get("weights")) is not None:
        raise ModelError(f"a network's description names the file {path!r}: send weights separately")
    return build(**description)


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(_builder(name)).parameters
    except (TypeError, ValueError):  # not callable, or written in C
        raise ModelError(f"the model {name!r} is not a function with known parameters") from None


def _builder(name: str) -> Callable[..., Any]:
    if name in MODELS:
        return MODELS[name]
    module, _, function = name.partition(":")
    if not function:
        check_known("model", name, [*MODELS, "package.module:function"], ModelError)
    try:
        builder: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"the model {name!r} cannot be imported: {error}") from error
    return builder
