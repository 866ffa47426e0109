"""Models that a site has got, on its disk under their hash: each travels once, and is always checked."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

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
    """Check that the weights are the model of the card, and keep them.

    Args:
        path: the file; its name should be the card's hash.
        card: what the model was said to be.
        state: its weights.
        largest: bytes that they may have.
        most: models that are kept in the folder; those that were not used for the longest time go first.
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    if size > largest:
        raise RefusedError(f"the model has {size} bytes, more than the {largest} allowed here")
    try:
        with torch.device("meta"):  # no memory is taken before it is known how much
            expected = {name: tensor.shape for name, tensor in rebuild(card.build).state_dict().items()}
        if expected != {name: tensor.shape for name, tensor in state.items()}:
            raise RefusedError(f"the weights do not fit {card.build}: names or shapes differ")
        model = rebuild(card.build)
        fresh = model.state_dict()
        if odd := [name for name, tensor in state.items() if not is_finite(tensor, fresh[name])]:
            raise RefusedError(f"the weights of {odd[0]!r} are not finite")
        model.load_state_dict(dict(state))
    except (ModelError, RuntimeError, TypeError) as error:
        # The text may be that of a network of the site's own, and name its files.
        raise RefusedError(f"{card.build} cannot be built here ({type(error).__name__})") from error
    check_fingerprint(model, card.fingerprint)
    check_hash(model, card.hash)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(path, model, build=card.build)
    others = [other for other in path.parent.glob("*.safetensors") if other != path]
    for old in sorted(others, key=lambda other: other.stat().st_mtime)[: max(0, len(others) + 1 - most)]:
        old.unlink(missing_ok=True)


def load(path: Path, hash_: str, fingerprint_: str, allowed: Collection[str]) -> nn.Module:
    """The model in the file, checked; a damaged file is removed, so that the model is sent again.

    Args:
        path: the file.
        hash_: of its weights.
        fingerprint_: of its architecture.
        allowed: names of networks that may be built here.
    """
    with _removed_if_damaged(path):
        built = read_card(path).get("build")
    name = built.get("name") if isinstance(built, dict) else None
    # The list may have become shorter since the model came.
    if name is not None and name not in allowed:
        raise RefusedError(f"the model {name!r} is not on this site's list: {', '.join(allowed)}")
    with _removed_if_damaged(path):
        model, _ = load_model(path, trusted=allowed)
        check_hash(model, hash_)
    os.utime(path)  # it is in use: see `keep`
    check_fingerprint(model, fingerprint_)
    return model


def outputs_of(path: Path) -> int | None:
    """How many classes the network in the file was built for, if its description says so."""
    built = read_card(path).get("build")
    count = built.get("num_classes") if isinstance(built, dict) else None
    return count if type(count) is int and 0 < count <= MOST_CLASSES else None


@contextmanager
def _removed_if_damaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (ModelError, RefusedError) as error:  # no LimitError: limits can be set differently
        path.unlink(missing_ok=True)
        raise RefusedError("the model was damaged here, and is removed") from error  # which names its file


def check_hash(model: nn.Module, hash_: str) -> None:
    """Raise a RefusedError unless the model has these weights."""
    if (found := weights_hash(model)) != hash_:
        raise RefusedError(f"the model has the hash {found}, not {hash_} as was said")


def check_fingerprint(model: nn.Module, fingerprint_: str) -> None:
    """Raise a RefusedError unless the model has this architecture."""
    if (found := fingerprint(model, describe(model))) != fingerprint_:
        raise RefusedError(f"the architecture has the fingerprint {found}, not {fingerprint_} as was said")


def card_of(model: nn.Module, built: dict[str, object]) -> ModelCard:
    """What a site is told of a model."""
    return ModelCard(weights_hash(model), fingerprint(model, describe(model)), built)
