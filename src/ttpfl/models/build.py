"""Networks by name: those that come along, and the user's own."""

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ttpfl.errors import ModelError
from ttpfl.models.resnet import resnet18, resnet50
from ttpfl.models.shallow_cnn import shallow_cnn

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
    make = MODELS.get(name) or _own(name)
    known = inspect.signature(make).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    try:
        return make(**{key: value for key, value in arguments.items() if takes_all or key in known})
    except (ModelError, OSError):
        raise
    except Exception as error:  # the user's own code can fail in any way
        raise ModelError(f"the model {name!r} cannot be built: {type(error).__name__}: {error}") from error


def rebuild(said: Mapping[str, Any]) -> nn.Module:
    """A network as a file or a message says it was built; it may not make us read other files.

    >>> rebuild({"name": "resnet18", "num_classes": 10, "weights": "somewhere.pth"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: a network's description names the file 'somewhere.pth': weights belong beside it
    """
    if said.get("weights") is not None:
        raise ModelError(
            f"a network's description names the file {said['weights']!r}: weights belong beside it"
        )
    return build(**said)


def _own(name: str) -> Callable[..., nn.Module]:
    module, _, function = name.partition(":")
    if not function:
        raise ModelError(
            f"there is no model {name!r}. Known: {', '.join(MODELS)}; your own is package.module:function"
        )
    try:
        found: Callable[..., nn.Module] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"the model {name!r} cannot be imported: {error}") from error
    return found
