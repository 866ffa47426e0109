"""A private twin of the user's model, in evaluation mode, whose tensors can be moved for one pass.

All computing happens in the twin, so the user's model is never touched.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.convolution import Narrow, Taps
from ttpfl.core.inputs import Inputs
from ttpfl.core.network import ModuleSpec, configuration, uncompiled, weights_hash
from ttpfl.core.outputs import Readout
from ttpfl.core.runner import Place, Runner
from ttpfl.core.statistics import StatisticsRule, rule_for
from ttpfl.core.torch_overrides import DIFFERENTIABLE_STATISTICS, channels_last
from ttpfl.errors import ModelError


@dataclass(frozen=True)
class Moved:
    """Tensors to compute with instead of the model's own: whole ones, and windows of kernels."""

    whole: Mapping[str, Tensor] = field(default_factory=dict)
    windows: Mapping[str, tuple[Taps, Tensor]] = field(default_factory=dict)

    def leaves(self) -> dict[str, Tensor]:
        """Every tensor in here, by name, ready to get a gradient."""
        tensors = {**self.whole, **{name: window for name, (_, window) in self.windows.items()}}
        return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


@dataclass
class PassRecord:
    """What is to be noted in a pass: batch statistics by buffer, and the windows of kernels used."""

    statistics: dict[str, list[Tensor]]
    windows: set[tuple[str, Taps]] = field(default_factory=set)

    def clear(self) -> None:
        """Forget a pass that failed."""
        self.windows.clear()
        for values in self.statistics.values():
            values.clear()


@contextmanager
def isolated() -> Iterator[None]:
    """Gradients on, whatever the caller's mode."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # it would keep every moved weight
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


class Twin:
    """A private evaluation-mode copy of `model`; later changes of the model do not reach it.

    Args:
        model: the user's model.
        movable: the tensors that will move; gradients are computed for these alone.
        readout: from the model's output to logits; `logits_of` if None.
    """

    def __init__(
        self, model: nn.Module, movable: Iterable[ModuleSpec], readout: Readout | None = None
    ) -> None:
        self.model = private_copy(model)
        self.model.eval()
        self.specs = {spec.name: spec for spec in movable}
        self.readout = readout
        self._index_tensors()

    def _index_tensors(self) -> None:
        self.parameters = dict(self.model.named_parameters())
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name in self.specs)
        own = {**self.parameters, **dict(self.model.named_buffers())}
        # The same tensors, apart from autograd.
        self.tensors = {name: tensor.detach() for name, tensor in own.items()}
        self.device = next(iter(self.tensors.values()), torch.empty(0)).device
        self._places = _places(self.model, {name: own[name] for name in self.specs})
        self._windows: dict[tuple[str, Taps], Tensor] = {}
        self.runner = Runner(self.model, self.readout, without_traces=True)
        for name in ("content", "relaid"):
            self.__dict__.pop(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are built anew: in a plain one, `tensors` would no longer be the parameters' memory."""
        return Twin, (self.model, tuple(self.specs.values()), self.readout)

    @cached_property
    def content(self) -> str:
        """A hash of the weights and of everything else that is known to shape the computation."""
        return weights_hash(self.model) + configuration(self.model)

    @cached_property
    def in_channels_last(self) -> dict[str, Tensor]:
        """The tensors that move, kernels of convolutions in the layout that their directions come in.

        For `fast` alone, and the same numbers: adding tensors of two layouts, and turning kernels round in
        every pass, takes longer.
        """
        return {
            name: channels_last(self.tensors[name]) if len(spec.shape) == 4 else self.tensors[name]
            for name, spec in self.specs.items()
        }

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """Change every tensor, as `nn.Module.to` does."""
        with torch.inference_mode(False):
            self.model._apply(change)
            self._index_tensors()

    def window(self, name: str, taps: Taps) -> Tensor:
        """The named kernel's window as a leaf tensor of its own; made once."""
        if (name, taps) not in self._windows:
            window = taps.of(self.tensors[name]).contiguous()
            self._windows[name, taps] = window.requires_grad_(name in self.specs)
        return self._windows[name, taps]

    def plain(self, inputs: Inputs, moved: Moved | None = None) -> Tensor:
        """The logits by the model's own operations, so with the same bits for the same tensors."""
        self.runner.rehearse(inputs)  # what it writes is seen, and kept, where nothing is moved
        with self._holding(moved or Moved()):
            return self.runner.plain(inputs)

    def fast(self, inputs: Inputs, moved: Moved | None = None, record: PassRecord | None = None) -> Tensor:
        """The logits in the fastest way known, differentiable in everything that moves.

        Rounding errors are of the same size as the plain model's, but not the same ones.
        """
        if moved is not None:
            self.runner.takes_channels_last(inputs)  # found out, as in `plain`, where nothing is moved
        moved, record = moved or Moved(), record or PassRecord({})
        narrow = self._narrow(moved, record.windows)
        with self._holding(Moved(moved.whole)), _watching(self.model, record.statistics):
            return self.runner.fast(inputs, DIFFERENTIABLE_STATISTICS, narrow, record.clear)

    def state_dict(self, moved: Moved) -> dict[str, Any]:
        """The model's own state dict with the moved tensors in it, as copies."""
        with self._holding(moved):
            return {
                key: value.clone(memory_format=torch.contiguous_format)
                if isinstance(value, Tensor)
                else value
                for key, value in self.model.state_dict().items()
            }

    @contextmanager
    def _holding(self, moved: Moved) -> Iterator[None]:
        """While open, the model computes with these tensors instead of its own."""
        own = [(store, key, store[key]) for name in moved.whole for store, key in self._places[name]]
        # Windows are written into the twin's own kernels: the originals are kept anyway.
        originals = [(name, taps, self.window(name, taps)) for name, (taps, _) in moved.windows.items()]
        try:
            for name, tensor in moved.whole.items():
                for store, key in self._places[name]:
                    store[key] = tensor
            for name, (taps, window) in moved.windows.items():
                taps.of(self.tensors[name]).copy_(window)
            yield
        finally:
            for store, key, original in own:
                store[key] = original
            for name, taps, window in originals:
                taps.of(self.tensors[name]).copy_(window.detach())

    def _narrow(self, moved: Moved, used: set[tuple[str, Taps]]) -> Narrow:
        names = {id(parameter): name for name, parameter in self.parameters.items()}

        def narrow(weight: Tensor, taps: Taps | None) -> Tensor:
            name = names.get(id(weight))
            if name is not None and name in moved.windows:
                own, window = moved.windows[name]
                if own == taps:
                    return window
                weight = embed(weight.detach(), own, window)
            elif name is not None and taps is not None:
                used.add((name, taps))
                return self.window(name, taps)
            return weight if taps is None else taps.of(weight)

        return narrow


def embed(kernel: Tensor, taps: Taps, window: Tensor) -> Tensor:
    """`kernel` with `window` in place of the taps (differentiable in the window)."""
    whole = kernel.clone()
    taps.of(whole).copy_(window)
    return whole


def _places(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, list[Place]]:
    """Where the model keeps each of the tensors; a shared one has several places."""
    of_tensor: dict[int, list[Place]] = {}
    for layer in model.modules():
        for store in (layer._parameters, layer._buffers):
            for key, tensor in store.items():
                of_tensor.setdefault(id(tensor), []).append((store, key))
    return {name: of_tensor[id(tensor)] for name, tensor in tensors.items()}


@contextmanager
def _watching(model: nn.Module, seen: dict[str, list[Tensor]]) -> Iterator[None]:
    """While open, adds the batch statistics of each buffer in `seen`, one entry per layer call."""
    with ExitStack() as hooks:
        for path, layer in model.named_modules() if seen else ():
            rule, prefix = rule_for(layer), f"{path}." if path else ""
            if rule and any(prefix + buffer in seen for buffer in rule.buffers):
                hook = _statistics_hook(rule, prefix, seen)
                hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _statistics_hook(rule: StatisticsRule, prefix: str, seen: dict[str, list[Tensor]]) -> Callable[..., None]:
    @torch.no_grad()
    def hook(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        x = args[0] if args else next(iter(kwargs.values()))
        for buffer, value in zip(rule.buffers, rule.compute(layer, x.detach()) or (), strict=False):
            if prefix + buffer in seen:
                seen[prefix + buffer].append(value)

    return hook


def private_copy(model: nn.Module) -> nn.Module:
    """A deep copy that shares nothing with `model`, without its gradients and without `torch.compile`.

    Compiled code is made for weights that stay what they are. Here they are others in every pass, for which
    it would be compiled again and again.
    """
    model = uncompiled(model)
    memo: dict[int, Any] = {}
    with torch.inference_mode(False), torch.no_grad():
        for parameter in model.parameters():
            own = nn.Parameter(parameter.clone(), requires_grad=False)
            own.__dict__.update(parameter.__dict__)
            memo[id(parameter)] = own
        for buffer in model.buffers():
            memo[id(buffer)] = buffer.clone()
        for layer in model.modules():
            # Most of a layer is empty dictionaries of hooks; deepcopy takes its time for each.
            empty = (v for v in vars(layer).values() if type(v) is OrderedDict and not v)
            memo.update((id(hooks), OrderedDict()) for hooks in empty)
            memo[id(getattr(layer, "_compiled_call_impl", None))] = None  # of layer.compile()
        try:
            return copy.deepcopy(model, memo)
        except Exception as error:
            raise ModelError(
                f"the model ({type(model).__name__}) cannot be copied: {error}. Hand over the bare "
                "nn.Module (not a distributed wrapper) and keep computed tensors, locks and open "
                "files out of its attributes"
            ) from error
