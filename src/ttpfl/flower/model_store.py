"""Models that a site has received, stored by hash: each is sent once, and checked on every use."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.network import describe, fingerprint, weights_hash
from ttpfl.errors import ModelError, RefusedError
from ttpfl.flower.messages import ModelCard
from ttpfl.models import load_model
from ttpfl.models.build import rebuild
from ttpfl.models.files import read_card, save_model
from ttpfl.models.weights import is_finite
from ttpfl.util.limits import MOST_CLASSES


def keep(path: Path, card: ModelCard, state: Mapping[str, Tensor], largest: int, most: int) -> None:
    """Check that the weights are those of the card's model, and store them.

    Args:
        path: The file; its name should be the card's hash.
        card: The claimed build, fingerprint and hash.
        state: The weights.
        largest: Limit of their size, in bytes.
        most: Number of models to keep in the folder; the least recently used are removed first.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if size > largest:
        raise RefusedError(f"the model has {size} bytes, above this site's limit of {largest}")
    try:
        with torch.device("meta"):  # allocates nothing before the size is known
            expected = {name: tensor.shape for name, tensor in rebuild(card.build).state_dict().items()}
        if expected != {name: tensor.shape for name, tensor in state.items()}:
            raise RefusedError(f"the weights do not fit {card.build}: names or shapes differ")
        model = rebuild(card.build)
        fresh = model.state_dict()
        if invalid := [name for name, tensor in state.items() if not is_finite(tensor, fresh[name])]:
            raise RefusedError(f"the weights of {invalid[0]!r} are not finite")
        model.load_state_dict(dict(state))
    except (ModelError, RuntimeError, TypeError) as error:
        # The text may come from a network that the site's operator wrote, and name files.
        raise RefusedError(f"{card.build} cannot be built here ({type(error).__name__})") from error
    check_fingerprint(model, card.fingerprint)
    check_hash(model, card.hash)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(path, model, build=card.build)
    older = [file for file in path.parent.glob("*.safetensors") if file != path]
    for file in sorted(older, key=lambda file: file.stat().st_mtime)[: max(0, len(older) + 1 - most)]:
        file.unlink(missing_ok=True)


def load(path: Path, hash_: str, fingerprint_: str, allowed: Collection[str]) -> nn.Module:
    """Load and check a model; a damaged file is removed, so that the server sends the model again.

    Args:
        path: The file.
        hash_: Hash of the weights.
        fingerprint_: Fingerprint of the architecture.
        allowed: Names of networks that may be built here.
    """
    with _removed_if_damaged(path):
        name = _build_of(path).get("name")
    # The operator may have shortened the list since the model was stored.
    if name is not None and name not in allowed:
        raise RefusedError(f"the model {name!r} is not on this site's list: {', '.join(allowed)}")
    with _removed_if_damaged(path):
        model, _ = load_model(path, trusted=allowed)
        check_hash(model, hash_)
    os.utime(path)  # marks it as used: see `keep`
    check_fingerprint(model, fingerprint_)
    return model


def outputs_of(path: Path) -> int | None:
    """Number of classes that the network in the file was built for, if the file contains it."""
    return outputs_in(read_card(path))


def outputs_in(card: Mapping[str, Any]) -> int | None:
    """Number of classes that a network was built for, if its card contains it."""
    build = card.get("build")
    count = build.get("num_classes") if isinstance(build, dict) else None
    return count if type(count) is int and 0 < count <= MOST_CLASSES else None


def _build_of(path: Path) -> dict[str, Any]:
    build = read_card(path).get("build")
    return build if isinstance(build, dict) else {}


@contextmanager
def _removed_if_damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (ModelError, RefusedError) as error:  # not a LimitError, since a limit can be raised
        path.unlink(missing_ok=True)
        # The cause, which names the file, goes to the audit log only.
        raise RefusedError("this site's copy of the model was damaged, and is removed") from error


def check_hash(model: nn.Module, hash_: str) -> None:
    """Refuse a model with other weights."""
    if (actual := weights_hash(model)) != hash_:
        raise RefusedError(f"the model has the hash {actual}, not {hash_} as announced")


def check_fingerprint(model: nn.Module, fingerprint_: str) -> None:
    """Refuse a model with another architecture."""
    if (actual := fingerprint(model, describe(model))) != fingerprint_:
        raise RefusedError(f"the architecture has the fingerprint {actual}, not {fingerprint_} as announced")


def card_of(model: nn.Module, build: dict[str, object]) -> ModelCard:
    """The description of a model for sites."""
    return ModelCard(weights_hash(model), fingerprint(model, describe(model)), build)
