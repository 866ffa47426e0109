"""The guard of one stream: what it lets a personalizer learn, which model answers, and what it reports."""

import logging
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ttpfl.core.direction import Direction
from ttpfl.core.guard import Guard
from ttpfl.core.health import Health
from ttpfl.core.influence import Influence, Seen
from ttpfl.core.inputs import Inputs
from ttpfl.core.watch import Watch

log = logging.getLogger("ttpfl")

LEFT_OUT = (
    "%d samples of a batch are much larger or smaller than usual: they are not learned from; see "
    "Personalizer.health.left_out (shown once)"
)
STOPPED = (
    "batch %d: adaptation stopped, since it seems to have cost %.1f right predictions so far; the "
    "plain model answers"
)
CONTINUED = "batch %d: adaptation continues, since its loss is made up for"


class Safeguard:
    """Applies a guard to a stream; without a guard, everything passes.

    Args:
        guard: the guard of the rates.
        online: whether the stream is remembered.
        on_alarm: called with the health whenever adaptation is stopped.
    """

    def __init__(
        self, guard: Guard | None, online: bool, on_alarm: Callable[[Health], object] | None = None
    ) -> None:
        self._influence = Influence(None if guard is None else guard.limits, online)
        self.watch = None if guard is None or guard.estimator is None else Watch(guard.estimator)
        self._on_alarm = on_alarm

    @property
    def adapting(self) -> bool:
        """Whether the adapted model answers."""
        return self.watch is None or self.watch.evidence.adapting

    def clear(self) -> None:
        """Forget the stream."""
        self._influence.clear()
        if self.watch is not None:
            self.watch.clear()

    def fresh_health(self) -> Health:
        """The health before the first batch."""
        return Health(evidence=None if self.watch is None else self.watch.evidence)

    def seen(self, inputs: Inputs) -> Seen:
        """Divide a batch into samples to learn from and outliers."""
        return self._influence.seen(inputs)

    def remember(self, seen: Seen, direction: Direction, health: Health) -> Health:
        """Remember a batch, and shorten its direction in place if it is too long."""
        shortened = self._influence.remember(seen, direction)
        if seen.left_out and not health.left_out:
            log.warning(LEFT_OUT, seen.left_out)
        left_out = health.left_out + seen.left_out
        return replace(health, left_out=left_out, shortened=health.shortened + shortened)

    def weigh(self, plain: Tensor, adapted: Tensor, health: Health) -> Health:
        """Add the logits of a batch to the evidence, and report a decision that changes."""
        if self.watch is None:
            return health
        before, now = self.watch.evidence, self.watch.after(plain, adapted)
        health = replace(health, evidence=now)
        if now.alarms > before.alarms:
            log.warning(STOPPED, health.batches, -now.gained)
            if self._on_alarm is not None:
                self._on_alarm(health)
        elif now.adapting and not before.adapting:
            log.info(CONTINUED, health.batches)
        return health
