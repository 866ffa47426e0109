"""The tensors of a network that can adapt: their kind, layer and block.

The paper calls each of these tensors a *module*: a learnable tensor, or a running statistic of a
normalisation layer. They are found by inspecting the model.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.statistics import rule_for
from ttpfl.errors import ModelError
from ttpfl.util.checksum import hash_tensor

_QUANTISED = ("torch.ao.nn.quantized", "torch.nn.quantized", "torch.ao.nn.intrinsic.quantized")
_NORM_SETTINGS = ("num_features", "num_groups", "normalized_shape", "eps", "affine", "track_running_stats")
_PLAIN = (bool, int, float, complex, str, tuple, list, dict, set, frozenset, Enum)


@dataclass(frozen=True)
class ModuleSpec:
    """One tensor that can adapt."""

    name: str  # state-dict key
    shape: tuple[int, ...]
    kind: str  # such as "conv.weight" or "batchnorm.running_mean"
    block: str  # part of the network, such as "layer3"
    statistic: bool = False  # a running statistic, not a learnable tensor
    nonnegative: bool = False  # such as a variance
    frozen: bool = False  # requires_grad was off
    log_domain: bool = False  # moves in the log domain, so that it stays positive for any rate

    @property
    def layer(self) -> str:
        """Name of the layer that owns the tensor; the tensor's name if the network itself owns it."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def size(self) -> int:
        """Number of scalars."""
        return int(torch.Size(self.shape).numel())


def prior_spec(classes: int) -> ModuleSpec:
    """The module that is no tensor of the network: an offset of the logits."""
    return ModuleSpec(LABEL_PRIOR, (classes,), LABEL_PRIOR, LABEL_PRIOR)


def in_log_domain(specs: Iterable[ModuleSpec]) -> tuple[ModuleSpec, ...]:
    """The tensors, with those that are never negative moving in the log domain."""
    return tuple(replace(spec, log_domain=spec.nonnegative) for spec in specs)


def uncompiled(model: nn.Module) -> nn.Module:
    """Unwrap a model compiled with `torch.compile`, which prefixes the names of tensors.

    >>> uncompiled(torch.compile(nn.Linear(3, 2)))
    Linear(in_features=3, out_features=2, bias=True)
    """
    wrapped = model._modules.get("_orig_mod") if type(model).__name__ == "OptimizedModule" else None
    return model if wrapped is None else wrapped


def describe(model: nn.Module) -> tuple[ModuleSpec, ...]:
    """List every tensor of `model` that can adapt, in state-dict order; shared tensors count once.

    >>> [spec.name for spec in describe(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, affine=False)))]
    ['0.weight', '0.bias', '1.running_mean', '1.running_var']
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise ModelError("a TorchScript model cannot adapt: pass the nn.Module it was made from")
    model = uncompiled(model)
    _check_differentiable(model)
    specs = list(_without_blocks(model))
    block_of = _block_names(model, [spec.name for spec in specs])
    return tuple(replace(spec, block=block_of(spec.name)) for spec in specs)


def _check_differentiable(model: nn.Module) -> None:
    """Reject quantised layers: their weights are packed, and no gradient passes through them."""
    for path, layer in model.named_modules():
        kind = type(layer)
        if kind.__module__.startswith(_QUANTISED):
            raise ModelError(
                f"layer {path!r} is quantised ({kind.__module__}.{kind.__name__}): its weights cannot adapt, "
                "and no gradient passes through it. Pass the model before quantisation, and quantise the "
                "result of `Personalizer.adapted_state_dict` afterwards"
            )


def _without_blocks(model: nn.Module) -> Iterator[ModuleSpec]:
    seen: set[int] = set()
    for path, layer in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, parameter in layer.named_parameters(recurse=False):
            if is_lazy(parameter):
                raise ModelError(
                    f"parameter {prefix + name!r} is not initialised (a lazy layer): "
                    "run the model once on a sample batch"
                )
            if id(parameter) not in seen and parameter.is_floating_point():
                seen.add(id(parameter))
                kind, frozen = _kind(layer, model, prefix + name), not parameter.requires_grad
                yield ModuleSpec(prefix + name, tuple(parameter.shape), kind, block="", frozen=frozen)
        rule = rule_for(layer)
        for name, buffer in layer.named_buffers(recurse=False):
            if rule and name in rule.buffers and id(buffer) not in seen:
                seen.add(id(buffer))
                kind, clamped = _kind(layer, model, prefix + name), name in rule.nonnegative
                yield ModuleSpec(prefix + name, tuple(buffer.shape), kind, "", True, clamped)


def _kind(layer: nn.Module, model: nn.Module, name: str) -> str:
    if layer is model and "." not in name and any(True for _ in model.children()):
        return "parameter"  # an nn.Parameter of the network itself
    return f"{re.sub(r'[0-9]+d$', '', type(layer).__name__).lower()}.{name.rpartition('.')[2]}"


def _block_names(model: nn.Module, names: list[str]) -> Callable[[str], str]:
    """Return a function from tensor names to blocks.

    Blocks are the model's top-level children. A child with more than half of all tensors, such as a wrapper
    or the stack of a transformer, is split into its own children. A single normalisation layer belongs to
    the child before it, as in conv1 + bn1.
    """
    opened: set[str] = set()
    while True:
        blocks = {name: _child_below(name, opened) for name in names}
        path, count = Counter(blocks.values()).most_common(1)[0] if names else ("", 0)
        if 2 * count <= len(names) or not _can_open(model, path, names):
            break
        opened.add(path)
    layers = dict(model.named_modules())
    owner: dict[str, str] = {}
    previous = ""
    for block in blocks.values():
        is_norm = block in layers and "norm" in type(layers[block]).__name__.lower()
        if block not in owner:
            owner[block] = previous if is_norm and previous else block
        previous = owner[block]
    return lambda name: owner[blocks[name]]


def _child_below(name: str, opened: set[str]) -> str:
    parts = name.split(".")
    path = parts[0]
    for part in parts[1:]:
        if path not in opened:
            break
        path = f"{path}.{part}"
    return path


def _can_open(model: nn.Module, path: str, names: list[str]) -> bool:
    has_tensors = any(name.startswith(f"{path}.") for name in names)
    return has_tensors and any(True for _ in model.get_submodule(path).children())


def fingerprint(model: nn.Module, specs: Iterable[ModuleSpec]) -> str:
    """Hash the architecture: names and shapes of all tensors that can adapt, and normalisation layers.

    The hash does not depend on the weights or on what is frozen. `specs` is `describe(model)`.
    """
    tensors = [[spec.name, list(spec.shape)] for spec in specs]
    norms = [
        [path, type(layer).__name__, {name: _simple(getattr(layer, name, None)) for name in _NORM_SETTINGS}]
        for path, layer in uncompiled(model).named_modules()
        if "norm" in type(layer).__name__.lower()
    ]
    return hashlib.sha256(json.dumps([tensors, norms]).encode()).hexdigest()


def _simple(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_simple(item) for item in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def configuration(model: nn.Module) -> str:
    """Describe every layer by its class and plain attributes, such as a temperature or a number of heads."""
    internal = vars(nn.Module()).keys()
    lines = []
    for path, layer in uncompiled(model).named_modules():
        plain = {
            name: sorted(map(repr, value)) if isinstance(value, (set, frozenset)) else value
            for name, value in vars(layer).items()
            if name not in internal and (value is None or isinstance(value, _PLAIN) or callable(value))
        }
        lines.append(f"{path} {type(layer).__module__}.{type(layer).__qualname__} {plain}")
    return "\n".join(lines)


def weights_hash(model: nn.Module) -> str:
    """Hash every parameter and buffer: two models with the same hash have the same weights."""
    digest, model = hashlib.sha256(), uncompiled(model)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        hash_tensor(digest, tensor)
    return digest.hexdigest()


def model_hash(model: nn.Module) -> str:
    """Hash everything that determines a model's output: weights, and plain attributes of every layer.

    >>> model = nn.Dropout(0.1)
    >>> before = model_hash(model)
    >>> model.p = 0.2
    >>> model_hash(model) == before
    False
    """
    # The repr of a function contains an address that differs between processes.
    settings = re.sub(r" at 0x[0-9a-f]+", "", configuration(model))
    return hashlib.sha256((weights_hash(model) + settings).encode()).hexdigest()
