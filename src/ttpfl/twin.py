"""A private twin of the user's model, in evaluation mode, whose tensors can be moved for one pass.

All computing happens in the twin, so the user's model is never touched.
"""

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.arithmetic import Arithmetic, DrawWatch, channels_last
from ttpfl.convolution import Narrow, Taps
from ttpfl.errors import BatchError, ModelError
from ttpfl.inputs import Inputs
from ttpfl.network import ModuleSpec, configuration, uncompiled, weights_hash
from ttpfl.outputs import logits_of
from ttpfl.statistics import StatisticsRule, rule_for

log = logging.getLogger("ttpfl")

Readout = Callable[[Any], Tensor]
Shapes = tuple[torch.Size, ...]
# What a model that cannot process a batch may raise.
MODEL_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


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
class Record:
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
        self._clumsy: set[Shapes] = set()  # images for which channels_last is not for this model
        self._habits: _Habits | None = None  # found out in the first pass

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
        self._habits = None
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
    def relaid(self) -> dict[str, Tensor]:
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
        self._rehearse(inputs)  # watching changes what some layers do
        with self._holding(moved or Moved()):
            return self._logits(inputs, None, self._forward(inputs, Tensor.clone))

    def fast(self, inputs: Inputs, moved: Moved | None = None, record: Record | None = None) -> Tensor:
        """The logits in the fastest way known, differentiable in everything that moves.

        Rounding errors are of the same size as the plain model's, but not the same ones.
        """
        if moved is not None:
            self._rehearse(inputs)  # what it writes is seen, and kept, where nothing is moved
        moved, record = moved or Moved(), record or Record({})
        if not self.takes_channels_last(inputs):
            return self._fast(inputs, Tensor.clone, moved, record)
        try:
            return self._fast(inputs, channels_last, moved, record)
        except BatchError:
            # Some code depends on the layout. If the batch as given works, stay with that. For other images
            # nothing is known: what is computed for these must not depend on which came first.
            record.clear()
            logits = self._fast(inputs, Tensor.clone, moved, record)
            self._clumsy.add(inputs.image_shapes)
            log.info("the model depends on the layout of its inputs: computing without channels_last")
            return logits

    def takes_channels_last(self, inputs: Inputs) -> bool:
        """Whether the model computes such images in that layout, as far as is known."""
        return inputs.image_shapes not in self._clumsy

    def _fast(
        self, inputs: Inputs, lay_out: Callable[[Tensor], Tensor], moved: Moved, record: Record
    ) -> Tensor:
        arithmetic = Arithmetic(self._narrow(moved, record.windows), lay_out is channels_last)
        with self._holding(Moved(moved.whole)), _watching(self.model, record.statistics):
            return self._logits(inputs, arithmetic, self._forward(inputs, lay_out))

    def _rehearse(self, inputs: Inputs) -> None:
        """One pass of the model as it is, if there was none yet, to find out its habits."""
        if self._habits is None:
            with torch.no_grad():
                self._logits(inputs, DrawWatch(), self._forward(inputs, Tensor.clone))

    def _forward(self, inputs: Inputs, lay_out: Callable[[Tensor], Tensor]) -> Callable[[], Any]:
        """One call of the model on a copy of the inputs: it may work on them in place."""

        def run() -> Any:
            own = inputs.map(lay_out)
            return self.model(*own.args, **own.kwargs)

        return run

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

    def _logits(self, inputs: Inputs, watch: DrawWatch | None, run: Callable[[], Any]) -> Tensor:
        try:
            output = self._without_traces(watch, run)
            logits = None if self.readout is None else self.readout(output)
        except torch.OutOfMemoryError:
            raise
        except MODEL_ERRORS as error:
            raise BatchError(f"the model cannot process this batch ({inputs}): {error}") from error
        if self.readout is None:
            return logits_of(output)
        if not isinstance(logits, Tensor):
            raise BatchError(f"logits= gives a {type(logits).__name__}: it must give a tensor")
        return logits

    def _without_traces(self, watch: DrawWatch | None, run: Callable[[], Any]) -> Any:
        """Run one pass; the random state, and buffers that it wrote to, are handed back as found.

        The first pass is watched to find out whether there is anything to hand back. There seldom
        is, and to restore the random state for no reason would rewind what other threads draw.
        """
        if self._habits is None:
            habits = _Habits(True, [_KeptBuffer(*place) for place in _buffer_places(self.model)])
        else:
            habits = self._habits
        state = _random_state(self.device) if habits.draws else None
        try:
            with watch or nullcontext():
                output = run()
        finally:
            drew = state is not None and not torch.equal(_random_state(self.device), state)
            if self._habits is None:
                drew = drew and watch is not None and watch.draws
            if drew and state is not None:
                _set_random_state(self.device, state)
            wrote = [buffer.restore() for buffer in habits.buffers]
        if self._habits is None:  # a pass that failed does not tell what would have come after
            self._habits = _Habits(drew, habits.buffers if any(wrote) else [])
        return output


@dataclass(frozen=True)
class _Habits:
    """What a model's evaluation pass does beside computing: most do neither."""

    draws: bool  # random numbers
    buffers: Sequence["_KeptBuffer"]  # all of them, if it writes to any


def embed(kernel: Tensor, taps: Taps, window: Tensor) -> Tensor:
    """`kernel` with `window` in place of the taps (differentiable in the window)."""
    whole = kernel.clone()
    taps.of(whole).copy_(window)
    return whole


class _KeptBuffer:
    """A buffer as it was before a pass."""

    def __init__(self, store: dict[str, Any], key: str) -> None:
        self.store, self.key = store, key
        self.tensor: Tensor = store[key]
        self.version = self.tensor._version
        self.content = self.tensor.clone()

    def restore(self) -> bool:
        """Undo what the pass did to it; whether there was anything."""
        if self.store.get(self.key) is self.tensor and self.tensor._version == self.version:
            return False
        self.store[self.key] = self.tensor
        self.tensor.detach().copy_(self.content)
        self.version = self.tensor._version
        return True


def _buffer_places(model: nn.Module) -> Iterator[tuple[dict[str, Any], str]]:
    for layer in model.modules():
        for key, buffer in layer._buffers.items():
            if buffer is not None:
                yield layer._buffers, key


def _places(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """Where the model keeps each of the tensors; a shared one has several places."""
    of_tensor: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for layer in model.modules():
        for store in (layer._parameters, layer._buffers):
            for key, tensor in store.items():
                of_tensor.setdefault(id(tensor), []).append((store, key))
    return {name: of_tensor[id(tensor)] for name, tensor in tensors.items()}


@contextmanager
def _watching(model: nn.Module, seen: dict[str, list[Tensor]]) -> Iterator[None]:
    """While open, adds the batch statistics of each buffer in `seen`, one entry per layer call."""
    handles = []
    for path, layer in model.named_modules() if seen else ():
        rule, prefix = rule_for(layer), f"{path}." if path else ""
        if rule and any(prefix + buffer in seen for buffer in rule.buffers):
            hook = _statistics_hook(rule, prefix, seen)
            handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _statistics_hook(rule: StatisticsRule, prefix: str, seen: dict[str, list[Tensor]]) -> Callable[..., None]:
    def hook(layer: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        x = args[0] if args else next(iter(kwargs.values()))
        with torch.no_grad():
            values = rule.compute(layer, x.detach())
        for buffer, value in zip(rule.buffers, values or (), strict=False):
            if prefix + buffer in seen:
                seen[prefix + buffer].append(value)

    return hook


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


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
