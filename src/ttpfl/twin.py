"""A private twin of the user's model, in evaluation mode, whose tensors can be moved for one pass.

All computing happens in the twin, so the user's model is never touched. The twin also knows two
things that the plain model does not: how to differentiate in running statistics, and how to leave
out convolution taps that see nothing but padding.
"""

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ttpfl import statistics
from ttpfl.convolution import Narrow, Taps, conv2d
from ttpfl.errors import BatchError, ModelError
from ttpfl.inputs import Inputs
from ttpfl.network import ModuleSpec, weights_hash

log = logging.getLogger("ttpfl")

Readout = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Moved:
    """Tensors to compute with instead of the model's own: whole ones, and windows of kernels."""

    whole: Mapping[str, Tensor] = field(default_factory=dict)
    windows: Mapping[str, tuple[Taps, Tensor]] = field(default_factory=dict)

    def leaves(self) -> dict[str, Tensor]:
        """Every tensor in here, by name, ready to get a gradient."""
        tensors = {**self.whole, **{name: window for name, (_, window) in self.windows.items()}}
        return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


@contextmanager
def isolated(device: torch.device) -> Iterator[None]:
    """Gradients on, whatever the caller's mode, and the random state handed back as it was found."""
    before = torch.get_rng_state()
    before_cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        # Only if the model drew numbers: another thread may be drawing its own meanwhile.
        if not torch.equal(torch.get_rng_state(), before):
            torch.set_rng_state(before)
        if before_cuda is not None:
            torch.cuda.set_rng_state(before_cuda, device)


class Twin:
    """A private evaluation-mode copy of `model`.

    Args:
        model: the user's model.
        movable: the tensors that will move; gradients are computed for these alone.
        snapshot: copy the weights, so that later changes of the model do not reach the twin;
            without it they are shared, which saves memory and time for a short life.
        readout: from the model's output to logits; the output itself if None.
    """

    def __init__(
        self,
        model: nn.Module,
        movable: Iterable[ModuleSpec],
        *,
        snapshot: bool = True,
        readout: Readout | None = None,
    ) -> None:
        self.model = _private_copy(model, snapshot).eval()
        self.specs = {spec.name: spec for spec in movable}
        self.readout = readout
        self._channels_last = True
        self._index_tensors()

    @cached_property
    def content(self) -> str:
        """A hash of the weights and of how the model describes itself."""
        return weights_hash(self.model) + repr(self.model)

    def _index_tensors(self) -> None:
        self.parameters = dict(self.model.named_parameters())
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name in self.specs)
        everything = {**self.parameters, **dict(self.model.named_buffers())}
        # The same tensors, apart from autograd.
        self.tensors = {name: tensor.detach() for name, tensor in everything.items()}
        self.device = next(iter(self.tensors.values()), torch.empty(0)).device
        self._windows: dict[tuple[str, Taps], Tensor] = {}

    @cached_property
    def _places(self) -> dict[str, list[tuple[dict[str, Any], str]]]:
        """Where the model keeps each movable tensor; a shared one has several places."""
        of_tensor: dict[int, list[tuple[dict[str, Any], str]]] = {}
        for layer in self.model.modules():
            for store in (layer._parameters, layer._buffers):
                for key, tensor in store.items():
                    of_tensor.setdefault(id(tensor), []).append((store, key))
        everything = {**self.parameters, **dict(self.model.named_buffers())}
        return {name: of_tensor[id(everything[name])] for name in self.specs}

    @contextmanager
    def _holding(self, tensors: Mapping[str, Tensor]) -> Iterator[None]:
        """While open, the model computes with these tensors instead of its own."""
        own = [(store, key, store[key]) for name in tensors for store, key in self._places[name]]
        try:
            for name, tensor in tensors.items():
                for store, key in self._places[name]:
                    store[key] = tensor
            yield
        finally:
            for store, key, original in own:
                store[key] = original

    def window(self, name: str, taps: Taps) -> Tensor:
        """The named kernel's window as a leaf tensor of its own; made once."""
        if (name, taps) not in self._windows:
            window = taps.of(self.tensors[name]).contiguous()
            self._windows[name, taps] = window.requires_grad_(name in self.specs)
        return self._windows[name, taps]

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """Change every tensor, as `nn.Module.to` does."""
        self.model._apply(change)
        self._index_tensors()
        for stale in ("content", "_places"):
            self.__dict__.pop(stale, None)

    def plain(self, inputs: Inputs) -> Tensor:
        """The logits of the model as it is: the same operations, so the same bits."""
        return self._logits(inputs, lambda: self.model(*inputs.args, **inputs.kwargs))

    def __call__(
        self,
        inputs: Inputs,
        moved: Moved | None = None,
        used: set[tuple[str, Taps]] | None = None,
        fast: bool = True,
    ) -> Tensor:
        """The logits with `moved` in place of the model's own tensors.

        Windows of kernels that stood for the model's own kernels are added to `used`. A `fast` pass
        takes what the CPU likes best, at the price of other rounding errors than the model's own.
        """
        moved = moved or Moved()
        narrow = self._narrow(moved, set() if used is None else used)

        def run(inputs: Inputs) -> Any:
            with self._holding(moved.whole), _Arithmetic(narrow, fast):
                return self.model(*inputs.args, **inputs.kwargs)

        if fast and self._channels_last:
            try:
                return self._logits(inputs, lambda: run(inputs.map(_channels_last)))
            except BatchError:
                # Some code depends on strides. If the batch as given works, stay with that.
                logits = self._logits(inputs, lambda: run(inputs))
                self._channels_last = False
                log.info("the model needs contiguous inputs: computing without channels_last")
                return logits
        return self._logits(inputs, lambda: run(inputs))

    def _logits(self, inputs: Inputs, run: Callable[[], Any]) -> Tensor:
        try:
            output = run()
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise BatchError(f"the model cannot process this batch ({inputs}): {error}") from error
        logits = output if self.readout is None else self.readout(output)
        if not isinstance(logits, Tensor):
            raise BatchError(
                f"the model's output is a {type(logits).__name__}, not a tensor: "
                "pass logits=, a function from the output to logits"
            )
        return logits

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

    @contextmanager
    def watching(self, names: Collection[str]) -> Iterator[dict[str, list[Tensor]]]:
        """While open, collects the batch statistics of the named buffers, one entry per layer call."""
        seen: dict[str, list[Tensor]] = {name: [] for name in names}
        handles = []
        for path, layer in self.model.named_modules():
            rule = statistics.rule_for(layer)
            prefix = f"{path}." if path else ""
            if rule and any(prefix + buffer in seen for buffer in rule.buffers):
                hook = _statistics_hook(rule, prefix, seen)
                handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()


def embed(kernel: Tensor, taps: Taps, window: Tensor) -> Tensor:
    """`kernel` with `window` in place of the taps (differentiable in the window)."""
    padded = kernel.clone()
    taps.of(padded).copy_(window)
    return padded


def _statistics_hook(
    rule: statistics.StatisticsRule, prefix: str, seen: dict[str, list[Tensor]]
) -> Callable[..., None]:
    def hook(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        x = args[0] if args else next(iter(kwargs.values()))
        with torch.no_grad():
            values = rule.compute(layer, x.detach())
        for buffer, value in zip(rule.buffers, values or (), strict=False):
            if prefix + buffer in seen:
                seen[prefix + buffer].append(value)

    return hook


class _Arithmetic(TorchFunctionMode):
    """Replaces a few torch functions while a twin computes, wherever in the model they are called."""

    def __init__(self, narrow: Narrow, fast: bool) -> None:
        super().__init__()
        self._rules: dict[Any, Callable[..., Any]] = {
            torch.conv2d: partial(conv2d, narrow, fast),
            F.batch_norm: statistics.batch_norm,
            F.instance_norm: statistics.instance_norm,
            # channels_last maps cannot always be viewed flat; a reshape is a view where one exists
            torch.Tensor.view: _view,
        }

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._rules.get(func, func)(*args, **(kwargs or {}))


def _view(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    as_dtype = kwargs or isinstance(args[0], torch.dtype)
    return tensor.view(*args, **kwargs) if as_dtype else tensor.reshape(*args)


def _channels_last(tensor: Tensor) -> Tensor:
    # About twice as fast for convolutions on a CPU; the weights may stay as they are.
    if tensor.ndim == 4 and tensor.is_floating_point() and tensor.device.type == "cpu":
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor


def _private_copy(model: nn.Module, snapshot: bool) -> nn.Module:
    """A deep copy of everything but the parameters, which are copied only for a snapshot."""
    with torch.inference_mode(False), torch.no_grad():
        memo: dict[int, Any] = {}
        for parameter in model.parameters():
            own = parameter.clone() if snapshot or parameter.is_inference() else parameter.detach()
            memo[id(parameter)] = nn.Parameter(own, requires_grad=False)
        for buffer in model.buffers():
            memo[id(buffer)] = buffer.clone()
        for layer in model.modules():
            # Most of a layer is empty dictionaries of hooks; deepcopy takes its time for each.
            empty = (v for v in vars(layer).values() if type(v) is OrderedDict and not v)
            memo.update((id(hooks), OrderedDict()) for hooks in empty)
        try:
            return copy.deepcopy(model, memo)
        except Exception as error:
            raise ModelError(
                f"the model ({type(model).__name__}) cannot be copied: {error}. Hand over the bare "
                "nn.Module (not a distributed wrapper) and keep computed tensors, locks and open "
                "files out of its attributes"
            ) from error
