"""The guard of one stream: what it lets a personalizer learn, which model answers, and what it reports."""

import logging
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ttpfl.core.direction import Direction
from ttpfl.core.guard import Guard
from ttpfl.core.health import Health
from ttpfl.core.influence import Influence, Seen, batch_size
from ttpfl.core.inputs import Inputs
from ttpfl.core.stream_change import changed
from ttpfl.core.watch import FARTHEST, Evidence, Watch

log = logging.getLogger("ttpfl")

LEFT_OUT = (
    "%d samples of a batch are much larger or smaller than usual: they are not learned from; see "
    "Personalizer.health.left_out (shown once)"
)
STOPPED = "batch %d: adaptation stopped, since %s; the plain model answers"
UNUSUAL = "it changes predictions as it rarely did at source clients (distance %.1f, usual is 1)"
OVERFLOWED = "it leads to logits that are not finite"
HARMFUL = "it seems to cost %.0f of 100 predictions"
CHANGED = "batch %d: the stream changed, so what was learned before it is forgotten"
FOREIGN = (
    "the rates were changed after their guard was learned, so it does not know what they do: the plain model "
    "answers; learn them again, or adapt without it (guard=False)"
)
CONTINUED = "batch %d: adaptation continues"


class Safeguard:
    """Applies a guard to a stream; without a guard, everything passes.

    Args:
        guard: the guard of the rates.
        online: whether the stream is remembered.
        known: whether the guard knows the rates; else adaptation is stopped from the beginning.
        on_alarm: called with the health whenever adaptation is stopped.
    """

    def __init__(
        self,
        guard: Guard | None,
        online: bool,
        known: bool = True,
        on_alarm: Callable[[Health], object] | None = None,
    ) -> None:
        self.refused = not known
        """Whether the guard does not know the rates, so that the plain model answers."""
        if self.refused:
            log.warning(FOREIGN)
        limits = None if guard is None else guard.limits
        self._influence = Influence(limits, online)
        self._limits = limits if online else None
        self.watch = (
            None
            if guard is None or guard.estimator is None
            else Watch(guard.estimator, guard.limits.batch_size, not known)
        )
        self._on_alarm = on_alarm

    @property
    def adapting(self) -> bool:
        """Whether the adapted model answers."""
        return not self.refused and (self.watch is None or self.watch.evidence.adapting)

    def clear(self) -> None:
        """Forget the stream."""
        self._influence.clear()
        if self.watch is not None:
            self.watch.clear()

    def forget_sizes(self) -> None:
        """Forget how large samples were, for a stream that is continued from a saved state."""
        self._influence.clear()

    def fresh_health(self) -> Health:
        """The health before the first batch."""
        return Health(evidence=None if self.watch is None else self.watch.evidence)

    def seen(self, inputs: Inputs) -> Seen:
        """Divide a batch into samples to learn from and outliers."""
        return self._influence.seen(inputs)

    def changed(self, seen: Seen, direction: Direction, mean: Direction, health: Health) -> Health:
        """Forget the stream before this batch if it changed; `health.changes` counts how often."""
        if self._limits is None or not changed(direction, mean, self._limits, batch_size(seen.inputs)):
            return health
        log.info(CHANGED, health.batches + 1)
        if self.watch is not None:
            self.watch.forget_past()
        return replace(health, changes=health.changes + 1)

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
        return self._reported(before, now, health, _reason(now))

    def overflowed(self, samples: int, health: Health) -> Health:
        """Count a batch that adaptation could not answer as one in which it harms."""
        if self.watch is None:
            return health
        before, now = self.watch.evidence, self.watch.overflowed(samples)
        return self._reported(before, now, health, OVERFLOWED)

    def _reported(self, before: Evidence, now: Evidence, health: Health, reason: str) -> Health:
        health = replace(health, evidence=now)
        if now.alarms > before.alarms:
            log.warning(STOPPED, health.batches, reason)
            if self._on_alarm is not None:
                self._on_alarm(health)
        elif before.alarm and not now.alarm:
            log.info(CONTINUED, health.batches)
        return health


def _reason(evidence: Evidence) -> str:
    if evidence.distance > FARTHEST:
        return UNUSUAL % evidence.distance
    return HARMFUL % (-100 * evidence.gain)
