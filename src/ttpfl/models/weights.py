"""Load weights from a local file into a new network."""

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
    """Load the weights of the file at `path` into `model`, except for a classifier that does not fit."""
    if path is None:
        return model
    weights, state = read_weights(path), model.state_dict()
    classifier = [name for name in state if name.startswith(CLASSIFIER)]
    if all(name in weights and weights[name].shape == state[name].shape for name in classifier):
        return fill(model, weights, path)
    log.info("%s has no classifier of this size: keeping the new %s", path, ", ".join(classifier))
    weights = {name: tensor for name, tensor in weights.items() if name not in classifier}
    return fill(model, weights, path, without=classifier)


def fill(
    model: nn.Module, weights: Mapping[str, Tensor], path: str | PathLike[str], without: Collection[str] = ()
) -> nn.Module:
    """Load all weights that were read from `path`, except for those in `without`, into `model`."""
    state = model.state_dict()
    for name, tensor in state.items():
        optional = name.endswith("num_batches_tracked") or name in without
        if name not in weights:
            if not optional:
                raise ModelError(f"{path} has no {name!r}: it is a file of another architecture")
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
    if unknown := sorted(weights.keys() - state.keys()):
        raise ModelError(f"{path} has {unknown[0]!r}, which this architecture does not have")
    model.load_state_dict({name: t.to(state[name].dtype) for name, t in weights.items()}, strict=False)
    return model


def is_finite(weights: Tensor, fresh: Tensor) -> bool:
    """Whether all values are finite or equal to those of the new network, such as a mask with -inf.

    >>> mask = torch.tensor([0.0, -torch.inf])
    >>> is_finite(mask, mask), is_finite(mask, torch.zeros(2))
    (True, False)
    """
    if not weights.is_floating_point():
        return not weights.dtype.is_complex
    return bool((weights.isfinite() | (weights == fresh.to(weights.dtype))).all())


def read_weights(path: str | PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a torch file, which is read without running code."""
    safe = Path(path).suffix == ".safetensors"
    MODEL.check(regular_size(path), path)
    try:
        if not safe and zipfile.is_zipfile(path):  # torch's format, which can be compressed
            MODEL.check(unpacked_size(path), path)
        weights = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, LimitError):
        raise  # the system's message is the clearest
    except Exception as error:  # the readers can fail in any way
        # Torch's own message advises to switch its protection off.
        reason = error if safe else "it is neither a safetensors file nor a torch file with only tensors"
        raise ModelError(f"{path} cannot be read as weights: {reason}") from error
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise ModelError(f"{path} is not a plain state dict of tensors")
    if unusable := [name for name, t in weights.items() if t.layout != torch.strided or t.is_quantized]:
        raise ModelError(f"{unusable[0]!r} in {path} is sparse or quantised: save plain tensors")
    return weights
