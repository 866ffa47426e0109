"""Weights from a local file into a freshly built network."""

import logging
import zipfile
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ttpfl.errors import LimitError, ModelError
from ttpfl.util.limits import MODEL
from ttpfl.util.npy import unpacked_size
from ttpfl.util.reading import regular_size

log = logging.getLogger("ttpfl")

CLASSIFIER = "fc."


def load_backbone(model: nn.Module, path: str | PathLike[str] | None) -> nn.Module:
    """`model` with the weights of the file at `path`, all but a classifier that does not fit."""
    if path is None:
        return model
    weights = read_weights(path)
    own = model.state_dict()
    classifier = [name for name in own if name.startswith(CLASSIFIER)]
    fits = all(name in weights and weights[name].shape == own[name].shape for name in classifier)
    if not fits:
        log.info(
            "%s has no classifier of this size: %s stays at its initialisation", path, ", ".join(classifier)
        )
        weights = {name: t for name, t in weights.items() if name not in classifier}
    return fill(model, weights, path, () if fits else classifier)


def fill(
    model: nn.Module, weights: Mapping[str, Tensor], path: str | PathLike[str], without: Collection[str] = ()
) -> nn.Module:
    """`model` with weights that were read from `path`, all of them but those of `without`."""
    own = model.state_dict()
    for name, tensor in own.items():
        optional = name.endswith("num_batches_tracked") or name in without
        if name not in weights:
            if not optional:
                raise ModelError(f"{path} has no {name!r}: it is not a file of this architecture")
        elif weights[name].shape != tensor.shape:
            raise ModelError(
                f"{name!r} has shape {tuple(weights[name].shape)} in {path}, "
                f"but {tuple(tensor.shape)} in this architecture"
            )
        elif not is_finite(weights[name], tensor):
            raise ModelError(
                f"{name!r} in {path} has values that are not finite: "
                "training diverged, or the file is damaged"
            )
    unknown = sorted(weights.keys() - own.keys())
    if unknown:
        raise ModelError(f"{path} holds {unknown[0]!r}, which this architecture does not have")
    model.load_state_dict({name: t.to(own[name].dtype) for name, t in weights.items()}, strict=False)
    return model


def is_finite(weights: Tensor, fresh: Tensor) -> bool:
    """Whether all values are finite but those of the freshly built network, such as a mask with -inf.

    >>> mask = torch.tensor([0.0, -torch.inf])
    >>> is_finite(mask, mask), is_finite(mask, torch.zeros(2))
    (True, False)
    """
    if weights.dtype.is_complex or not weights.is_floating_point():
        return not weights.dtype.is_complex
    return bool((weights.isfinite() | (weights == fresh.to(weights.dtype))).all())


def read_weights(path: str | PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a torch file read without running any code in it."""
    safe = Path(path).suffix == ".safetensors"
    MODEL.check(regular_size(path), path)
    try:
        if not safe and zipfile.is_zipfile(path):  # torch's own, which may be packed
            MODEL.check(unpacked_size(path), path)
        weights = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, LimitError):
        raise  # missing or unreadable: the system's own words are the clearest
    except Exception as error:  # junk can fail in any way inside the readers
        # Torch advises to switch its protection off, which nobody should do because of our message.
        why = error if safe else "it is no safetensors file, and no torch file of nothing but tensors"
        raise ModelError(f"{path} cannot be read as weights: {why}") from error
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise ModelError(f"{path} is not a plain state dict of tensors")
    if odd := [name for name, t in weights.items() if t.layout != torch.strided or t.is_quantized]:
        raise ModelError(f"{odd[0]!r} in {path} is sparse or quantized: save plain tensors")
    return weights
