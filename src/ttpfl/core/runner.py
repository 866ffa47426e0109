"""The one way to call a model: on a copy of a batch, in the fastest memory layout that the model takes.

Convolutions are about twice as fast on a CPU where images are channels last, but some models cannot process
such images: they flatten maps with `view`, or look at strides. A runner tries one layout after the other and
remembers, for each kind of images, the first that works. What is computed for a batch never depends on the
batches before. Whatever a model raises becomes a `BatchError` that names the batch.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ttpfl.core.convolution import Narrow, part_that_sees_data
from ttpfl.core.inputs import Inputs
from ttpfl.core.outputs import Readout, logits_of
from ttpfl.core.torch_overrides import NO_RULES, DrawWatch, FastLayout, Rules, channels_last
from ttpfl.errors import BatchError, TtpflError
from ttpfl.util.randomness import seeded

log = logging.getLogger("ttpfl")

Layout = Callable[[Tensor], Tensor]
Kind = tuple[bool, bool, tuple[torch.Size, ...]]  # fast or plain, training or not, the shapes of images
Overrides = Callable[[Layout], AbstractContextManager[Any]]
Place = tuple[dict[str, Any], str]
# What a model that cannot process a batch may raise.
MODEL_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def as_given(tensor: Tensor) -> Tensor:
    """A copy of `tensor` in its own layout."""
    return tensor.clone()


def contiguous(tensor: Tensor) -> Tensor:
    """A copy of `tensor` in torch's default layout, which every model takes."""
    return tensor.clone(memory_format=torch.contiguous_format)


PLAIN: Sequence[Layout] = (as_given, contiguous)
FAST: Sequence[Layout] = (channels_last, as_given, contiguous)


class Runner:
    """Calls `model` on batches, which stay as they are.

    Args:
        model: its mode, training or evaluation, is the caller's choice.
        readout: from the model's output to logits; `logits_of` if None.
        without_traces: hand the random state, and buffers that a pass writes to, back as they were.

    >>> class Viewing(nn.Conv2d):
    ...     def forward(self, x):
    ...         return super().forward(x).view(len(x), -1)
    >>> images = torch.ones(4, 3, 5, 5).to(memory_format=torch.channels_last)
    >>> Runner(Viewing(3, 2, 1)).plain(Inputs((images,), {})).shape
    torch.Size([4, 50])
    """

    def __init__(
        self, model: nn.Module, readout: Readout | None = None, without_traces: bool = False
    ) -> None:
        self.model, self._readout = model, readout
        self._layouts: dict[Kind, Layout] = {}  # the first that works
        self._effects = _SideEffects(model) if without_traces else None

    def plain(self, inputs: Inputs) -> Tensor:
        """The logits by the model's own operations: the same bits as those of a call by hand."""
        self.rehearse(inputs)
        return self._run(PLAIN, inputs, nullcontext)

    def rehearse(self, inputs: Inputs) -> None:
        """Find out about side effects, if nothing is known yet.

        That takes a pass of its own, since watching changes what some layers compute.
        """
        if self._effects is not None and not self._effects.known:
            with torch.no_grad():
                self._run(PLAIN, inputs, nullcontext)

    def fast(
        self,
        inputs: Inputs,
        rules: Rules = NO_RULES,
        narrow: Narrow = part_that_sees_data,
        before_attempt: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """The logits in the fastest way known: rounding errors of the same size, but not the same ones.

        Args:
            inputs: what to call the model with.
            rules: what to call in place of some of torch's functions.
            narrow: gives the part of a kernel that sees data, for convolutions on small maps.
            before_attempt: called before the pass, and again before each try in another layout.
        """

        def overrides(layout: Layout) -> FastLayout:
            before_attempt()
            return FastLayout(layout is channels_last, narrow, rules)

        return self._run(FAST, inputs, overrides)

    def takes_channels_last(self, inputs: Inputs) -> bool:
        """Whether `fast` computes such images in that layout; a trial finds out, if there were none yet."""
        kind = self._kind(FAST, inputs)
        if kind not in self._layouts:
            self._try(kind, FAST, inputs, lambda layout: FastLayout(layout is channels_last))
        return self._layouts[kind] is channels_last

    def _kind(self, layouts: Sequence[Layout], inputs: Inputs) -> Kind:
        return layouts is FAST, self.model.training, inputs.image_shapes

    def _run(self, layouts: Sequence[Layout], inputs: Inputs, overrides: Overrides) -> Tensor:
        kind = self._kind(layouts, inputs)
        if self.model.training and kind not in self._layouts:  # a failed pass would count in BatchNorm
            self._try(kind, layouts, inputs, overrides)
        start = layouts.index(self._layouts.get(kind, layouts[0]))
        attempt = partial(self._pass, self.model, inputs, overrides)
        self._layouts[kind], logits = _first_that_works(layouts[start:], attempt)
        return logits

    def _try(self, kind: Kind, layouts: Sequence[Layout], inputs: Inputs, overrides: Overrides) -> None:
        """Find out which layout works and leave no traces: where a pass leaves some, it is on a copy."""
        leaves_traces = self._effects is None
        model = copy.deepcopy(self.model) if leaves_traces else self.model
        with torch.no_grad(), seeded(0) if leaves_traces else nullcontext():
            attempt = partial(self._pass, model, inputs, overrides)
            self._layouts[kind], _ = _first_that_works(layouts, attempt)

    def _pass(self, model: nn.Module, inputs: Inputs, overrides: Overrides, layout: Layout) -> Tensor:
        with _translated_errors(inputs):
            with self._effects.undone() if self._effects else nullcontext(), overrides(layout):
                own = inputs.map(layout)  # a model may work on it in place
                output = model(*own.args, **own.kwargs)
            logits = logits_of(output) if self._readout is None else self._readout(output)
        if not isinstance(logits, Tensor):
            raise BatchError(f"logits= gives a {type(logits).__name__}: it must give a tensor")
        return logits


def _first_that_works(
    layouts: Sequence[Layout], attempt: Callable[[Layout], Tensor]
) -> tuple[Layout, Tensor]:
    *others, last = layouts
    for layout in others:
        try:
            return layout, attempt(layout)
        except BatchError as error:
            log.info("trying another memory layout than %s: %s", layout.__name__, error)
    return last, attempt(last)


@contextmanager
def _translated_errors(inputs: Inputs) -> Iterator[None]:
    """While open, what a model raises becomes a BatchError that names the batch."""
    try:
        yield
    except (TtpflError, torch.OutOfMemoryError):
        raise
    except MODEL_ERRORS as error:
        raise BatchError(f"the model cannot process this batch ({inputs}): {error}") from error


class _SideEffects:
    """What a model's evaluation pass does beside computing: it may draw random numbers, and write to buffers.

    The first pass is watched to find out. Most models do neither, and to restore the random state for no
    reason would rewind what other threads draw.
    """

    def __init__(self, model: nn.Module) -> None:
        self.known = False  # a pass that failed does not tell what would have come after
        self._model, self._draws = model, True
        self._buffers: list[_KeptBuffer] = []  # all of them, if the model writes to any
        tensors = (tensor for group in (model.parameters(), model.buffers()) for tensor in group)
        self._generator = _generator(next(tensors, torch.empty(0)).device)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Around one pass, after which the random state and all buffers are as before."""
        watch = None if self.known else DrawWatch()
        if watch is not None:
            self._buffers = [_KeptBuffer(*place) for place in _buffer_places(self._model)]
        state = self._generator.get_state() if self._draws else None
        try:
            with watch or nullcontext():
                yield
        finally:
            drew = state is not None and not torch.equal(self._generator.get_state(), state)
            drew = drew and (watch is None or watch.draws)
            if drew and state is not None:
                self._generator.set_state(state)
            wrote = [buffer.restore() for buffer in self._buffers]
        if not self.known:
            self.known, self._draws = True, drew
            self._buffers = self._buffers if any(wrote) else []


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


def _buffer_places(model: nn.Module) -> Iterator[Place]:
    for layer in model.modules():
        for key, buffer in layer._buffers.items():
            if buffer is not None:
                yield layer._buffers, key


def _generator(device: torch.device) -> torch.Generator:
    """The one that models on this device draw from."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
