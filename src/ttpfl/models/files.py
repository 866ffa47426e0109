"""Model files: safetensors with the weights, and a card that says how to build the network."""

import json
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from ttpfl._version import __version__
from ttpfl.errors import ModelError
from ttpfl.files import written_in_one_step
from ttpfl.models.build import MODELS, rebuild
from ttpfl.models.weights import fill, read_weights

KEY = "ttpfl"


def save_model(path: str | PathLike[str], model: nn.Module, **card: Any) -> None:
    """Write the model's state in one step. `card` is plain data to keep with it.

    With `card["build"]`, the arguments of `ttpfl.models.build`, the file can be loaded without the model;
    with `card["signature"]`, the fields of a `Signature`, `ttpfl personalize` needs nothing else.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/model.safetensors"
    >>> from ttpfl.models import build
    >>> save_model(path, build("shallow_cnn", num_classes=4), build={"name": "shallow_cnn", "num_classes": 4})
    >>> load_model(path)[0].linear5.out_features
    4
    """
    tensors = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()
    }
    metadata = {KEY: json.dumps({"library": __version__, **card})}
    with written_in_one_step(Path(path)) as file:
        file.write(save(tensors, metadata=metadata))


def load_model(
    path: str | PathLike[str], model: nn.Module | None = None, *, trusted: Collection[str] = ()
) -> tuple[nn.Module, dict[str, Any]]:
    """The model in a file, in evaluation mode, and the file's card.

    The network is built as the card says; `model` is used (and changed) instead, if given. Then the file
    may be any safetensors or torch file of its weights. `trusted` names functions (package.module:function)
    that a file may name as the builder of its network, beside the networks of ttpfl.
    """
    card, weights = read_card(path), read_weights(path)
    return fill(_built(card, path, trusted) if model is None else model, weights, path).eval(), card


def read_card(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file says beside its weights; nothing, if it is not one of `save_model`."""
    with open(path, "rb"):
        pass  # missing files get the system's own words
    if Path(path).suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            card: dict[str, Any] = json.loads((file.metadata() or {}).get(KEY, "{}"))
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"{path} is not a sound safetensors file: {error}") from error
    if isinstance(kind := card.get("format"), str):  # model files have none
        what = {"ttpfl.rates": "a rates file (--rates)", "ttpfl.checkpoint": "a checkpoint of a run"}.get(
            kind, kind
        )
        raise ModelError(f"{path} is {what}, not a model: give the model.safetensors of `ttpfl train`")
    return card


def _built(card: dict[str, Any], path: str | PathLike[str], trusted: Collection[str]) -> nn.Module:
    if not card.get("build"):
        raise ModelError(f"{path} does not say how its network is built: pass the model, or --arch")
    name = card["build"]["name"]
    if name not in MODELS and name not in trusted:  # a file shall not decide which code runs
        raise ModelError(
            f"{path} says that {name!r} builds its network, which did not come with ttpfl: "
            f"if you trust it, pass the model, or --arch {name}"
        )
    return rebuild(card["build"])
