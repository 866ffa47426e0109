"""A private copy of the user's model, in evaluation mode, whose tensors can be moved for one pass.

All passes use the twin, so the user's model is never changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.convolution import Narrow, Taps, part_that_sees_data
from ttpfl.core.inputs import Inputs
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.last_layer import Call, owner_of
from ttpfl.core.network import ModuleSpec, configuration, weights_hash
from ttpfl.core.outputs import Readout
from ttpfl.core.private_copy import private_copy
from ttpfl.core.runner import Place, Runner, contiguous
from ttpfl.core.same_call import answering, keeping, layer_before
from ttpfl.core.statistics import owners, record_statistics
from ttpfl.core.torch_overrides import DIFFERENTIABLE_STATISTICS, channels_last


@dataclass(frozen=True)
class Moved:
    """Tensors that replace those of the model: whole ones, and windows of kernels."""

    whole: Mapping[str, Tensor] = field(default_factory=dict)
    windows: Mapping[str, tuple[Taps, Tensor]] = field(default_factory=dict)

    def leaves(self) -> dict[str, Tensor]:
        """Every tensor by name, with `requires_grad` on."""
        tensors = {**self.whole, **{name: window for name, (_, window) in self.windows.items()}}
        return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


@dataclass
class PassRecord:
    """What to record in a pass."""

    statistics: dict[str, list[Tensor]]
    """Of the batch, by buffer: one for each call of the layer."""
    windows: set[tuple[str, Taps]] = field(default_factory=set)
    """Of kernels."""
    calls: list[Call] = field(default_factory=list)
    """Of the last layer."""
    kept: list[Call] = field(default_factory=list)
    """The call that a second pass need not repeat."""

    def clear(self) -> None:
        """Discard what a failed pass recorded."""
        self.windows.clear()
        self.calls.clear()
        self.kept.clear()
        for values in self.statistics.values():
            values.clear()


@contextmanager
def isolated() -> Iterator[None]:
    """Enable gradients regardless of the caller's mode."""
    cache_enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # it would keep every moved weight
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cache_enabled)


class Twin:
    """A private evaluation-mode copy of `model`, independent of later changes of the model.

    Args:
        model: the user's model.
        movable: the tensors that move; only these get gradients. The label prior, which is none, is left out.
        readout: maps the model's output to logits; `logits_of` if None.
    """

    def __init__(
        self, model: nn.Module, movable: Iterable[ModuleSpec], readout: Readout | None = None
    ) -> None:
        self.model = private_copy(model)
        self.model.eval()
        self._movable = tuple(movable)
        self.specs = {spec.name: spec for spec in self._movable if spec.name != LABEL_PRIOR}
        self.readout = readout
        self._index_tensors()

    def _index_tensors(self) -> None:
        self.parameters = dict(self.model.named_parameters())
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name in self.specs)
        originals = {**self.parameters, **dict(self.model.named_buffers())}
        # The same memory, without autograd.
        self.tensors = {name: tensor.detach() for name, tensor in originals.items()}
        self.device = next(iter(self.tensors.values()), torch.empty(0)).device
        self._places = _places(self.model, {name: originals[name] for name in self.specs})
        self._windows: dict[tuple[str, Taps], Tensor] = {}
        self._trims: dict[tuple[torch.Size, ...], bool] = {(): False}
        """Whether taps are skipped for images of these shapes."""
        learnable = [name for name, spec in self.specs.items() if not spec.statistic]
        self.last_layer = owner_of(self.model, learnable)
        """The layer of all learnable tensors that move, if it may be the last one of the model."""
        self._recorded = list(owners(self.model, self.specs))
        before = layer_before(self.model, [layer for layer, *_ in self._recorded])
        last = self.last_layer and self.last_layer.layer
        self._repeating = None if before is last else before
        self.runner = Runner(self.model, self.readout, without_traces=True)
        for name in ("content", "in_channels_last"):
            self.__dict__.pop(name, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild copies: in a plain copy, `tensors` would not share the memory of the parameters."""
        return Twin, (self.model, self._movable, self.readout)

    @cached_property
    def content(self) -> str:
        """Hash of the weights, and a description of every layer."""
        return weights_hash(self.model) + configuration(self.model)

    @cached_property
    def in_channels_last(self) -> dict[str, Tensor]:
        """Tensors that move, with convolution kernels in the channels-last layout, like their directions.

        Only for `fast`: adding tensors of different layouts, or converting kernels in every pass, is slower.
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
        """Return the window of the named kernel as a leaf tensor, created once."""
        if (name, taps) not in self._windows:
            window = taps.of(self.tensors[name]).contiguous()
            self._windows[name, taps] = window.requires_grad_(name in self.specs)
        return self._windows[name, taps]

    @property
    def keeps_features(self) -> bool:
        """Whether nothing before the last layer moves."""
        if any(spec.statistic for spec in self.specs.values()):
            return False
        return not self.specs or self.last_layer is not None

    def plain(self, inputs: Inputs, moved: Moved | None = None, record: PassRecord | None = None) -> Tensor:
        """Compute the logits with the model's own operations: equal tensors give equal bits."""
        self.runner.rehearse(inputs)  # detects writes to buffers before anything is moved
        moved, record = moved or Moved(), record or PassRecord({})
        with self._holding(moved), self._watching(record):
            return self.runner.plain(inputs, record.clear)

    def fast(self, inputs: Inputs, moved: Moved | None = None, record: PassRecord | None = None) -> Tensor:
        """Compute the logits as fast as possible, differentiable in everything that moves.

        Rounding errors are as small as those of `plain`, but not the same.
        """
        if moved is not None:
            self.runner.takes_channels_last(inputs)  # as in `plain`, before anything is moved
        moved, record = moved or Moved(), record or PassRecord({})
        narrow = self._narrow(moved, record.windows)
        with self._holding(Moved(moved.whole)), self._watching(record):
            return self.runner.fast(inputs, DIFFERENTIABLE_STATISTICS, narrow, record.clear)

    def first(self, inputs: Inputs, record: PassRecord) -> Tensor:
        """Compute the logits of the model's own tensors.

        They are differentiable if anything before the last layer needs a gradient.
        """
        if self.keeps_features:
            return self.plain(inputs, record=record)
        learnable = any(not spec.statistic for spec in self.specs.values())
        if learnable and self.last_layer is None:
            return self.fast(inputs, record=record)
        run = self.fast if self._fast_pays(inputs) else self.plain
        with keeping(self._repeating, record.kept):
            return run(inputs, record=record)

    def again(self, inputs: Inputs, moved: Moved, logits: Tensor, record: PassRecord) -> Tensor:
        """`plain` with moved tensors; without a second pass if nothing before the last layer moves.

        Args:
            inputs: arguments of the model.
            moved: the moved tensors.
            logits: the result of `first`.
            record: what `first` recorded.
        """
        if not self.keeps_features:
            with answering(self._repeating, record.kept):
                return self.plain(inputs, moved)
        if self.last_layer is None:
            return logits
        return self.last_layer.logits(record.calls[0].features, moved.whole)

    def _fast_pays(self, inputs: Inputs) -> bool:
        """Whether `fast` changes the layout of images or skips taps; else `plain` takes less time."""
        if not inputs.in_channels_last:
            return True
        shapes = inputs.image_shapes
        if shapes not in self._trims:  # a trial, so that all batches are treated alike
            record = PassRecord({})
            with torch.no_grad():
                self.fast(inputs, record=record)
            self._trims[shapes] = bool(record.windows)
        return self._trims[shapes]

    def state_dict(self, moved: Moved) -> dict[str, Any]:
        """Return the model's state dict with the moved tensors, as copies."""
        with self._holding(moved):
            entries = self.model.state_dict().items()
            return {key: contiguous(value) if isinstance(value, Tensor) else value for key, value in entries}

    @contextmanager
    def _holding(self, moved: Moved) -> Iterator[None]:
        """Let the model use the moved tensors while open."""
        originals = [(store, key, store[key]) for name in moved.whole for store, key in self._places[name]]
        # Windows are written into the twin's kernels; their original values are kept in `_windows`.
        windows = [(name, taps, self.window(name, taps)) for name, (taps, _) in moved.windows.items()]
        try:
            for name, tensor in moved.whole.items():
                for store, key in self._places[name]:
                    store[key] = tensor
            for name, (taps, window) in moved.windows.items():
                taps.of(self.tensors[name]).copy_(window)
            yield
        finally:
            for store, key, original in originals:
                store[key] = original
            for name, taps, window in windows:
                taps.of(self.tensors[name]).copy_(window.detach())

    @contextmanager
    def _watching(self, record: PassRecord) -> Iterator[None]:
        """While open, record batch statistics, one entry per layer call, and calls of the last layer."""
        recorded = record.statistics
        with ExitStack() as hooks:
            if self.last_layer is not None:
                hooks.enter_context(self.last_layer.watching(record.calls))
            for layer, rule, prefix in self._recorded if recorded else ():
                hook = partial(record_statistics, rule, prefix, recorded)
                hooks.enter_context(layer.register_forward_pre_hook(hook, with_kwargs=True))
            yield

    def _narrow(self, moved: Moved, used: set[tuple[str, Taps]]) -> Narrow:
        names = {id(parameter): name for name, parameter in self.parameters.items()}

        def narrow(weight: Tensor, taps: Taps | None) -> Tensor:
            name = names.get(id(weight))
            if name is not None and name in moved.windows:
                moved_taps, window = moved.windows[name]
                if moved_taps == taps:
                    return window
                weight = embed(weight.detach(), moved_taps, window)
            elif name is not None and taps is not None:
                used.add((name, taps))
                return self.window(name, taps)
            return part_that_sees_data(weight, taps)

        return narrow


def embed(kernel: Tensor, taps: Taps, window: Tensor) -> Tensor:
    """Copy `kernel` with `window` in place of the taps; differentiable in the window."""
    copied = kernel.clone()
    taps.of(copied).copy_(window)
    return copied


def _places(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, list[Place]]:
    """Where the model stores each of the tensors; a shared tensor has several places."""
    places: dict[int, list[Place]] = {}
    for layer in model.modules():
        for store in (layer._parameters, layer._buffers):
            for key, tensor in store.items():
                places.setdefault(id(tensor), []).append((store, key))
    return {name: places[id(tensor)] for name, tensor in tensors.items()}
