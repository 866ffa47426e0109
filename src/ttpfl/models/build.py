"""Networks by name: those that come along, and the user's own."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ttpfl.errors import ModelError
from ttpfl.models.resnet import resnet18, resnet50
from ttpfl.models.shallow_cnn import shallow_cnn
from ttpfl.util.settings_kit import check_known

MODELS: dict[str, Callable[..., nn.Module]] = {
    "shallow_cnn": shallow_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
}


def build(name: str, **arguments: Any) -> nn.Module:
    """A network by its name, or by `package.module:function` for one of the user's own.

    Of `arguments` (such as `num_classes`, `image_size`, `weights`) it gets those that it knows.

    >>> type(build("shallow_cnn", num_classes=10, image_size=28)).__name__
    'ShallowCNN'
    >>> type(build("torch.nn:Linear", in_features=2, out_features=3, num_classes=10)).__name__
    'Linear'
    """
    make = _maker(name)
    known = _parameters(name)
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    try:
        made = make(**{key: value for key, value in arguments.items() if takes_all or key in known})
    except (ModelError, OSError):
        raise
    except Exception as error:  # the user's own code can fail in any way
        raise ModelError(f"the model {name!r} cannot be built: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise ModelError(f"the model {name!r} gives {type(made).__name__}: it must give a torch.nn.Module")
    return made


def arguments_for(name: str, classes: int, image_size: tuple[int, int]) -> dict[str, Any]:
    """What `build` takes for a network that sees pictures of this height and width.

    >>> arguments_for("resnet18", 10, (20, 28))  # its last step is a mean over the picture, of whatever size
    {'name': 'resnet18', 'num_classes': 10, 'image_size': 20}
    >>> arguments_for("shallow_cnn", 10, (20, 28))
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: pictures are 20x28, but the network shallow_cnn takes square ones alone: ...
    """
    height, width = image_size
    if height != width and "image_size" in _parameters(name):
        side = max(image_size)
        raise ModelError(
            f"pictures are {height}x{width}, but the network {name} takes square ones alone: resize them, "
            f"such as with data.options.image_size={side} in a recipe "
            f"(--option image_size={side} or --image-size {side} of other commands)"
        )
    return {"name": name, "num_classes": classes, "image_size": height}


def rebuild(said: Mapping[str, Any]) -> nn.Module:
    """A network as a file or a message says it was built; it may not make us read other files.

    >>> rebuild({"name": "resnet18", "num_classes": 10, "weights": "somewhere.pth"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: a network's description names the file 'somewhere.pth': weights belong beside it
    """
    if not isinstance(said.get("name"), str):
        raise ModelError(f"a network's description is {dict(said)!r:.60}: it must name a network")
    if said.get("weights") is not None:
        raise ModelError(
            f"a network's description names the file {said['weights']!r}: weights belong beside it"
        )
    return build(**said)


def _maker(name: str) -> Callable[..., nn.Module]:
    return MODELS.get(name) or _own(name)


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(_maker(name)).parameters
    except (TypeError, ValueError):  # not callable, or written in C
        raise ModelError(f"the model {name!r} is no function that says what it takes") from None


def _own(name: str) -> Callable[..., nn.Module]:
    module, _, function = name.partition(":")
    if not function:
        check_known("model", name, [*MODELS, "package.module:function"], ModelError)
    try:
        found: Callable[..., nn.Module] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"the model {name!r} cannot be imported: {error}") from error
    return found
