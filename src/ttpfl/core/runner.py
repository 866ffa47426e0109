"""Every forward pass: on a copy of the batch, in the fastest memory layout that the model supports.

On a CPU, convolutions are about twice as fast on channels-last images, but some models do not support them:
they flatten maps with `view`, or depend on strides. A runner tries one layout after the other and remembers
the first that works, for each mode and image shape. Batches of other shapes change nothing.
Errors of the model become a `BatchError` that names the batch.
"""

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain
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
Kind = tuple[bool, bool, tuple[torch.Size, ...]]  # fast or plain, training or evaluation, image shapes
Overrides = Callable[[Layout], AbstractContextManager[Any]]
Place = tuple[dict[str, Any], str]
# Errors that models raise if they cannot process a batch.
MODEL_ERRORS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)


def as_given(tensor: Tensor) -> Tensor:
    """Copy `tensor` in its own layout."""
    return tensor.clone()


def contiguous(tensor: Tensor) -> Tensor:
    """Copy `tensor` to torch's default layout, which every model supports."""
    return tensor.clone(memory_format=torch.contiguous_format)


PLAIN: Sequence[Layout] = (as_given, contiguous)
FAST: Sequence[Layout] = (channels_last, as_given, contiguous)


class Runner:
    """Calls `model` on copies of batches.

    Args:
        model: in training or evaluation mode, as the caller sets it.
        readout: maps the model's output to logits; `logits_of` if None.
        without_traces: restore the random state, and buffers that a pass writes to.

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

    def plain(self, inputs: Inputs, before_attempt: Callable[[], None] = lambda: None) -> Tensor:
        """Compute the logits with the model's own operations: the same bits as calling the model directly.

        `before_attempt` is called before the pass in each layout that is tried.
        """
        self.rehearse(inputs)

        def overrides(layout: Layout) -> AbstractContextManager[None]:
            before_attempt()
            return nullcontext()

        return self._run(PLAIN, inputs, overrides)

    def rehearse(self, inputs: Inputs) -> None:
        """Detect side effects, unless they are already known.

        This takes a separate pass, since watching changes the computation of some layers.
        """
        if self._effects is not None and not self._effects.detected:
            with torch.no_grad():
                self._run(PLAIN, inputs, nullcontext)

    def fast(
        self,
        inputs: Inputs,
        rules: Rules = NO_RULES,
        narrow: Narrow = part_that_sees_data,
        before_attempt: Callable[[], None] = lambda: None,
    ) -> Tensor:
        """Compute the logits as fast as possible: rounding errors differ from `plain`, but are as small.

        Args:
            inputs: arguments of the model.
            rules: replacements of torch functions.
            narrow: returns the part of a kernel that sees data, for convolutions on small maps.
            before_attempt: called before the pass in each layout that is tried.
        """

        def overrides(layout: Layout) -> FastLayout:
            before_attempt()
            return FastLayout(layout is channels_last, narrow, rules)

        return self._run(FAST, inputs, overrides)

    def takes_channels_last(self, inputs: Inputs) -> bool:
        """Whether `fast` uses channels last for images of these shapes; unknown shapes are tried first."""
        kind = self._kind(FAST, inputs)
        if kind not in self._layouts:
            self._try(kind, FAST, inputs, lambda layout: FastLayout(layout is channels_last))
        return self._layouts[kind] is channels_last

    def _kind(self, layouts: Sequence[Layout], inputs: Inputs) -> Kind:
        return layouts is FAST, self.model.training, inputs.image_shapes

    def _run(self, layouts: Sequence[Layout], inputs: Inputs, overrides: Overrides) -> Tensor:
        kind = self._kind(layouts, inputs)
        if self.model.training and kind not in self._layouts:  # a failed pass would change BatchNorm
            self._try(kind, layouts, inputs, overrides)
        start = layouts.index(self._layouts.get(kind, layouts[0]))
        attempt = partial(self._pass, self.model, inputs, overrides)
        self._layouts[kind], logits = _first_working(layouts[start:], attempt)
        return logits

    def _try(self, kind: Kind, layouts: Sequence[Layout], inputs: Inputs, overrides: Overrides) -> None:
        """Find the layout that works without side effects, on a copy if a pass has any."""
        leaves_traces = self._effects is None
        model = copy.deepcopy(self.model) if leaves_traces else self.model
        with torch.no_grad(), seeded(0) if leaves_traces else nullcontext():
            attempt = partial(self._pass, model, inputs, overrides)
            self._layouts[kind], _ = _first_working(layouts, attempt)

    def _pass(self, model: nn.Module, inputs: Inputs, overrides: Overrides, layout: Layout) -> Tensor:
        with _translated_errors(inputs):
            with self._effects.undone() if self._effects else nullcontext(), overrides(layout):
                copied = inputs.map(layout)  # a model may change its inputs in place
                output = model(*copied.args, **copied.kwargs)
            logits = logits_of(output) if self._readout is None else self._readout(output)
        if not isinstance(logits, Tensor):
            raise BatchError(f"logits= returns a {type(logits).__name__}: it must return a tensor")
        return logits


def _first_working(layouts: Sequence[Layout], attempt: Callable[[Layout], Tensor]) -> tuple[Layout, Tensor]:
    *preferred, last = layouts
    for layout in preferred:
        try:
            return layout, attempt(layout)
        except BatchError as error:
            log.info("memory layout %s failed, trying another one: %s", layout.__name__, error)
    return last, attempt(last)


@contextmanager
def _translated_errors(inputs: Inputs) -> Iterator[None]:
    """Turn errors of the model into a BatchError that names the batch."""
    try:
        yield
    except (TtpflError, torch.OutOfMemoryError):
        raise
    except MODEL_ERRORS as error:
        raise BatchError(f"the model cannot process this batch ({inputs}): {error}") from error


class _SideEffects:
    """Side effects of a model's evaluation pass: drawing random numbers and writing to buffers.

    The first pass is watched to detect them. Most models have none, and restoring the random state without
    need would rewind the random numbers of other threads.
    """

    def __init__(self, model: nn.Module) -> None:
        self.detected = False  # stays False after a failed pass, which may have missed some
        self._model, self._draws = model, True
        self._buffers: list[_KeptBuffer] = []  # all of them, if the model writes to any
        device = next(chain(model.parameters(), model.buffers()), torch.empty(0)).device
        on_gpu = device.type == "cuda"
        self._generator = torch.cuda.default_generators[device.index] if on_gpu else torch.default_generator

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Restore the random state and all buffers after one pass."""
        watch = None if self.detected else DrawWatch()
        if watch is not None:
            stores = [layer._buffers for layer in self._model.modules()]
            self._buffers = [
                _KeptBuffer(store, key) for store in stores for key in store if store[key] is not None
            ]
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
        if not self.detected:
            self.detected, self._draws = True, drew
            self._buffers = self._buffers if any(wrote) else []


class _KeptBuffer:
    """A buffer and its content before a pass."""

    def __init__(self, store: dict[str, Any], key: str) -> None:
        self.store, self.key = store, key
        self.tensor: Tensor = store[key]
        self.version = self.tensor._version
        self.content = self.tensor.clone()

    def restore(self) -> bool:
        """Restore the buffer; return whether the pass had changed it."""
        if self.store.get(self.key) is self.tensor and self.tensor._version == self.version:
            return False
        self.store[self.key] = self.tensor
        self.tensor.detach().copy_(self.content)
        self.version = self.tensor._version
        return True
