"""Check whether learned rates help on source clients, and choose what to return if they do not."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.metric_sums import MetricSums

ROUNDING = 1e-3
"""Relative differences of the loss up to this size are ignored."""


class Candidate(NamedTuple):
    """Rates after a number of rounds."""

    rounds: int
    values: Tensor


class Kept(NamedTuple):
    """Rates to fall back to, and their loss minus that without adaptation, on the cohort of their round."""

    excess: float
    candidate: Candidate


def keep(kept: dict[int, Kept], excess: float, candidate: Candidate) -> None:
    """Keep the rates with the smallest excess in each span of rounds: 0, 1, 2 to 3, 4 to 7, 8 to 15, ...

    Few rates are kept, and which ones does not depend on the total number of rounds. Excesses of different
    cohorts are hard to compare (some cohorts gain more), so they only decide within a span. `verdict` chooses
    what to return, on the same clients for all.

    >>> kept = {}
    >>> for rounds, excess in enumerate([0.0, -0.1, -0.2, -0.3, -0.9, -0.5]):
    ...     keep(kept, excess, Candidate(rounds, torch.zeros(2)))
    >>> [best.candidate.rounds for best in kept.values()]
    [0, 1, 3, 4]
    """
    span = candidate.rounds.bit_length()
    if excess < (kept[span].excess if span in kept else inf):
        kept[span] = Kept(excess, candidate)


def returnable(initial: Tensor, kept: Mapping[int, Kept]) -> list[Candidate]:
    """List the rates to fall back to: the initial ones, and those that were kept."""
    return [Candidate(0, initial), *(best.candidate for best in kept.values() if best.candidate.rounds)]


@dataclass(frozen=True)
class Verdict:
    """The rates to return, and how they compare with no adaptation on source clients."""

    chosen: Candidate
    last: Candidate
    plain: MetricSums
    adapted: MetricSums
    """With the chosen rates."""
    adapted_last: MetricSums

    def recorded(self, clients: int) -> dict[str, Any]:
        """Plain numbers to store with the rates; `clients` is the number of clients in the check."""
        return {
            "clients": clients,
            "round": self.chosen.rounds,
            "last_round": self.last.rounds,
            "samples": self.plain.samples,
            **self.plain.figures("plain"),
            **self.adapted.figures("adapted"),
        }

    @property
    def warning(self) -> str | None:
        """Warning for the user; None if the rates of the last round help."""
        if not worse(self.plain, self.adapted_last):
            return None
        problem = (
            f"the rates of the last round ({self.last.rounds}) are worse than no adaptation on the clients "
            f"they were learned from ({_shown(self.adapted_last)}; no adaptation: {_shown(self.plain)})"
        )
        remedy = "lower lr and learn again"
        if self.chosen.rounds == self.last.rounds:
            return f"{problem}, and no earlier rates are better: do not use them; {remedy}"
        fallback = f"{problem}. The rates of round {self.chosen.rounds} are returned ({_shown(self.adapted)})"
        if worse(self.plain, self.adapted):
            return f"{fallback}, which are the best, but worse than none as well: do not use them; {remedy}"
        if not self.chosen.values.any():
            return f"{problem}. No earlier rates are better, so rates of zero are returned: {remedy}"
        return f"{fallback}; lower lr for better ones"


def verdict(last: Candidate, others: Iterable[Candidate], judge: Callable[[Tensor], MetricSums]) -> Verdict:
    """Choose the last rates, or the best of all if the last are worse than no adaptation.

    The best have the smallest loss among those that are not worse than no adaptation, or among all if all
    are worse.

    Args:
        last: rates of the last round.
        others: earlier rates to fall back to.
        judge: computes loss and accuracy after adaptation with rates of these values, on the clients of the
            check; without adaptation for zeros. Called for `others` only if `last` is worse.

    >>> import torch
    >>> losses = {0.0: 2.0, 1.0: 1.5, 9.0: 4.0}
    >>> judge = lambda values: MetricSums(samples=10, loss=10 * losses[float(values)], right=None)
    >>> good, bad = (Candidate(rounds, torch.tensor(float(rounds))) for rounds in (1, 9))
    >>> verdict(good, [], judge).chosen.rounds, verdict(bad, [good], judge).chosen.rounds
    (1, 1)
    """
    plain = judge(torch.zeros_like(last.values))
    adapted_last = judge(last.values)
    judged = [(last, adapted_last)]
    if worse(plain, adapted_last):
        judged += [(other, judge(other.values)) for other in others]
    helpful = [(candidate, sums) for candidate, sums in judged if not worse(plain, sums)]
    chosen, adapted = min(helpful or judged, key=lambda pair: _loss(pair[1]))
    return Verdict(chosen, last, plain, adapted, adapted_last)


def worse(plain: MetricSums, adapted: MetricSums) -> bool:
    """Whether the loss is more than 0.1 % larger, or the accuracy more than two standard errors smaller.

    >>> plain = MetricSums(samples=1000, loss=500.0, right=889)
    >>> worse(plain, MetricSums(1000, 400.0, 880)), worse(plain, MetricSums(1000, 400.0, 760))
    (False, True)
    >>> worse(plain, MetricSums(1000, 502.0, 889))
    True
    """
    rise = _loss(adapted) - plain.mean_loss
    if rise > ROUNDING * abs(plain.mean_loss):
        return True
    if plain.right is None or plain.accuracy is None or adapted.accuracy is None:
        return False
    estimate = (plain.right + 1) / (plain.samples + 2)  # never 0 or 1, where the error would be 0
    return plain.accuracy - adapted.accuracy > 2 * sqrt(estimate * (1 - estimate) / max(1, plain.samples))


def _loss(sums: MetricSums) -> float:
    return sums.mean_loss if isfinite(sums.mean_loss) else inf


def _shown(sums: MetricSums) -> str:
    accuracy = "" if sums.accuracy is None else f", accuracy {sums.accuracy:.1%}"
    return f"loss {sums.mean_loss:.4g}{accuracy}"
