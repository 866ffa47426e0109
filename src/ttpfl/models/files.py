"""Model files: safetensors with the weights, and a card that describes how to build the network.

Layout: the tensors of the state dict; the metadata key `ttpfl` with the card, which has a checksum of itself
and the tensors. Unknown keys of a card are ignored. Files of version 1 have no checksum.
"""

import json
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ttpfl._version import __version__
from ttpfl.errors import ModelError
from ttpfl.models.build import MODELS, rebuild
from ttpfl.models.weights import fill, read_weights
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import parse_json, regular_size

KEY = "ttpfl"
FORMAT = "ttpfl.model"
VERSION = 2


def save_model(path: str | PathLike[str], model: nn.Module, **card: Any) -> None:
    """Write the model's state dict atomically, with a card of plain data.

    With `build=`, the arguments of `ttpfl.models.build`, the file can be loaded without the model. With
    `signature=`, the fields of a `Signature`, `ttpfl personalize` needs nothing else.

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
    card |= {"format": FORMAT, "version": VERSION, "library": __version__}
    metadata = {KEY: json.dumps(sealed(card, tensors))}
    with written_in_one_step(Path(path)) as file:
        file.write(save(tensors, metadata=metadata))


def load_model(
    path: str | PathLike[str], model: nn.Module | None = None, *, trusted: Collection[str] = ()
) -> tuple[nn.Module, dict[str, Any]]:
    """Load a model, in evaluation mode, and its card.

    Args:
        path: The model file. If `model` is given, any safetensors or torch file of its weights.
        model: Network to load the weights into (it is changed); by default, it is built from the card.
        trusted: Your own functions (package.module:function) that the card may use to build the network.
    """
    card, weights = read_card(path), read_weights(path)
    _check_sound(card, weights, path)
    return fill(_built(card, path, trusted) if model is None else model, weights, path).eval(), card


def read_card(path: str | PathLike[str]) -> dict[str, Any]:
    """The card of a model file; empty if it was not written by `save_model`."""
    regular_size(path)  # raises the system's error for missing files
    if Path(path).suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if KEY not in metadata and any(FORMAT in value for value in metadata.values()):
            raise ValueError(f"its card is not under the key {KEY!r}, so it is damaged: get it again")
        card = parse_json(metadata.get(KEY, "{}"))
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"{path} is not a valid safetensors file: {error}") from error
    if not isinstance(card, dict):
        raise ModelError(f"{path} has a card that is not a table: {card!r:.60}")
    if (kind := card.get("format", FORMAT)) != FORMAT:
        kinds = {"ttpfl.rates": "a rates file (--rates)", "ttpfl.checkpoint": "a checkpoint of a run"}
        name = kinds.get(str(kind), f"a file of format {kind!r:.60}")
        raise ModelError(f"{path} is {name}, not a model: pass the model.safetensors of `ttpfl train`")
    return card


def _check_sound(card: dict[str, Any], weights: Mapping[str, Tensor], path: str | PathLike[str]) -> None:
    """Files of version 1 have neither format nor checksum; files of other programs have no card."""
    if "format" not in card and CHECKSUM not in card:
        if card:
            warn_of_old_format(str(path))
    elif not is_sound(card, weights):
        raise ModelError(f"{path} is damaged (its checksum does not match): get it again, or train again")
    elif (card.get("format"), card.get("version")) != (FORMAT, VERSION):
        raise ModelError(
            f"{path} has format {card.get('format')!r} {card.get('version')!r}; "
            f"this version reads {FORMAT!r} {VERSION}: upgrade ttpfl"
        )


def _built(card: dict[str, Any], path: str | PathLike[str], trusted: Collection[str]) -> nn.Module:
    built = card.get("build")
    if not built:
        raise ModelError(f"{path} does not describe its network: pass the model, or --arch")
    if not isinstance(built, dict) or not isinstance(built.get("name"), str):
        raise ModelError(f"{path} describes its network as {built!r:.60}: it must name a network")
    name = built["name"]
    if name not in MODELS and name not in trusted:  # a file must not decide which code runs
        raise ModelError(
            f"{path} needs {name!r} to build its network, which did not come with ttpfl: "
            f"if you trust it, pass the model, or --arch {name}"
        )
    return rebuild(built)
