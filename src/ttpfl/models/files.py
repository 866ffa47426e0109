"""Model files: safetensors with the weights, and a card that says how to build the network.

Layout: the tensors of the state; metadata key `ttpfl` with the card, which holds a checksum over itself and
the tensors. Keys of a card that are not known are left alone. Files of version 1 have no checksum.
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
    said = {**card, "format": FORMAT, "version": VERSION, "library": __version__}
    metadata = {KEY: json.dumps(sealed(said, tensors))}
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
    _check_sound(card, weights, path)
    return fill(_built(card, path, trusted) if model is None else model, weights, path).eval(), card


def read_card(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file says beside its weights; nothing, if it is not one of `save_model`."""
    regular_size(path)  # missing files get the system's own words
    if Path(path).suffix != ".safetensors":
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if KEY not in metadata and any(FORMAT in value for value in metadata.values()):
            raise ValueError(f"its card is not under the key {KEY!r}, so it is damaged: get it again")
        card = parse_json(metadata.get(KEY, "{}"))
    except (SafetensorError, ValueError) as error:
        raise ModelError(f"{path} is not a sound safetensors file: {error}") from error
    if not isinstance(card, dict):
        raise ModelError(f"{path} has a card that is no table but {card!r:.60}")
    if (kind := card.get("format", FORMAT)) != FORMAT:
        known = {"ttpfl.rates": "a rates file (--rates)", "ttpfl.checkpoint": "a checkpoint of a run"}
        what = known.get(str(kind), f"a file of format {kind!r:.60}")
        raise ModelError(f"{path} is {what}, not a model: give the model.safetensors of `ttpfl train`")
    return card


def _check_sound(card: dict[str, Any], weights: Mapping[str, Tensor], path: str | PathLike[str]) -> None:
    """Files of version 1 have neither format nor checksum; files of others have no card at all."""
    if "format" not in card and CHECKSUM not in card:
        if card:
            warn_of_old_format(str(path))
    elif not is_sound(card, weights):
        raise ModelError(f"{path} is damaged (its checksum does not match): get it again, or train it again")
    elif (card.get("format"), card.get("version")) != (FORMAT, VERSION):
        raise ModelError(
            f"{path} has format {card.get('format')!r} {card.get('version')!r}; "
            f"this version reads {FORMAT!r} {VERSION}: upgrade ttpfl"
        )


def _built(card: dict[str, Any], path: str | PathLike[str], trusted: Collection[str]) -> nn.Module:
    built = card.get("build")
    if not built:
        raise ModelError(f"{path} does not say how its network is built: pass the model, or --arch")
    if not isinstance(built, dict) or not isinstance(built.get("name"), str):
        raise ModelError(f"{path} says that its network is built with {built!r:.60}: it must name a network")
    name = built["name"]
    if name not in MODELS and name not in trusted:  # a file shall not decide which code runs
        raise ModelError(
            f"{path} says that {name!r} builds its network, which did not come with ttpfl: "
            f"if you trust it, pass the model, or --arch {name}"
        )
    return rebuild(built)
