"""What the guard of a stream decided, in the words of `ttpfl personalize`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from ttpfl.cli.errors import ALARM
from ttpfl.cli.messages import say, warn

if TYPE_CHECKING:
    from torch import Tensor

    from ttpfl.core.watch import Estimate, Evidence


def evidence_of(predictor: "Callable[[Tensor], Tensor]") -> "Evidence | None":
    """The evidence so far; None if the predictor has no guard."""
    from ttpfl.core.personalizer import Personalizer

    return predictor.health.evidence if isinstance(predictor, Personalizer) else None


def answering(predictor: "Callable[[Tensor], Tensor]") -> str | None:
    """The model that answered the last batch; None if the predictor has no guard."""
    evidence = evidence_of(predictor)
    return None if evidence is None else "adapted" if evidence.adapting else "plain"


def report_evidence(predictor: "Callable[[Tensor], Tensor]", fail: bool) -> None:
    """Print what the guard estimates; if it stopped adaptation, warn, and exit with a code if `fail`."""
    evidence = evidence_of(predictor)
    if evidence is None:
        return
    if evidence.plain_accuracy is not None and evidence.adapted_accuracy is not None:
        plain, adapted = in_words(evidence.plain_accuracy), in_words(evidence.adapted_accuracy)
        say(f"estimated accuracy without labels: plain model {plain}, adapted {adapted}")
    if evidence.plain_batches:
        say(f"batches answered by the plain model: {evidence.plain_batches}")
    if evidence.alarms:
        now = "and the plain model answers" if evidence.alarm else "and has continued since"
        reason = "it was unusual, seemed to harm or overflowed"
        warn(f"adaptation was stopped {times(evidence.alarms)}, because {reason}, {now}")
        if fail:
            raise typer.Exit(ALARM)


def in_words(estimate: "Estimate") -> str:
    """An estimate with its interval."""
    return f"{estimate.value:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"


def times(count: int) -> str:
    """A number of times.

    >>> times(1), times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"
