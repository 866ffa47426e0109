"""Whether learned rates help on clients that they were learned from; if not, what to return instead."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.metric_sums import MetricSums

ROUNDING = 1e-3
"""The part of the loss that does not count as a difference."""


class Candidate(NamedTuple):
    """Rates after so many rounds."""

    rounds: int
    values: Tensor


class Kept(NamedTuple):
    """Rates to go back to, and the loss with them minus that without, on their round's own cohort."""

    excess: float
    candidate: Candidate


def keep(kept: dict[int, Kept], excess: float, candidate: Candidate) -> None:
    """Keep the smallest excess of each span of rounds: 0, 1, 2 to 3, 4 to 7, 8 to 15, and so on.

    Few rates are kept however long learning takes, and which ones does not depend on how long it will take.
    Excesses of different cohorts are hard to compare (some cohorts have more to gain), so they only choose
    within a span; what is returned is decided by `verdict`, on the same clients for all.

    >>> kept = {}
    >>> for rounds, excess in enumerate([0.0, -0.1, -0.2, -0.3, -0.9, -0.5]):
    ...     keep(kept, excess, Candidate(rounds, torch.zeros(2)))
    >>> [one.candidate.rounds for one in kept.values()]
    [0, 1, 3, 4]
    """
    span = candidate.rounds.bit_length()
    if excess < (kept[span].excess if span in kept else inf):
        kept[span] = Kept(excess, candidate)


def returnable(begin: Tensor, kept: Mapping[int, Kept]) -> list[Candidate]:
    """What can be gone back to: the rates to start with, and those that were kept."""
    return [Candidate(0, begin), *(one.candidate for one in kept.values() if one.candidate.rounds)]


@dataclass(frozen=True)
class Verdict:
    """What is returned, and how it compares with no adaptation on the source clients."""

    chosen: Candidate
    last: Candidate
    plain: MetricSums
    adapted: MetricSums
    """With the chosen rates."""
    adapted_last: MetricSums

    def recorded(self, clients: int) -> dict[str, Any]:
        """Plain numbers, to be kept with the rates: what was found on so many clients."""
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
        """What the user must know; None if the last round's rates help."""
        if not worse(self.plain, self.adapted_last):
            return None
        said = (
            f"the rates of the last round ({self.last.rounds}) are worse than no adaptation on the clients "
            f"that they were learned from ({_shown(self.adapted_last)}; no adaptation: {_shown(self.plain)})"
        )
        again = "lower lr, and learn again"
        if self.chosen.rounds == self.last.rounds:
            return f"{said}, and no earlier ones are better: do not use them; {again}"
        returned = f"{said}. Those of round {self.chosen.rounds} are returned ({_shown(self.adapted)})"
        if worse(self.plain, self.adapted):
            return f"{returned}, the best, but worse than none as well: do not use them; {again}"
        if not self.chosen.values.any():
            return f"{said}. Those of earlier rounds are no better, so rates of zero are returned: {again}"
        return f"{returned}; lower lr for better ones"


def verdict(last: Candidate, others: Iterable[Candidate], judge: Callable[[Tensor], MetricSums]) -> Verdict:
    """Return the last rates unless they are worse than none; then the best of all, on the same clients.

    The best has the smallest loss among those that are not worse than no adaptation; among all, if all are.

    Args:
        last: what learning ended with.
        others: earlier rates to go back to.
        judge: loss and accuracy over the clients of the check after adaptation with rates of these values;
            without adaptation for zeros. It is called for the others only if the last are worse.

    >>> import torch
    >>> losses = {0.0: 2.0, 1.0: 1.5, 9.0: 4.0}
    >>> judge = lambda values: MetricSums(samples=10, loss=10 * losses[float(values)], right=None)
    >>> good, bad = (Candidate(rounds, torch.tensor(float(rounds))) for rounds in (1, 9))
    >>> verdict(good, [], judge).chosen.rounds, verdict(bad, [good], judge).chosen.rounds
    (1, 1)
    """
    plain = judge(torch.zeros_like(last.values))
    seen = [(last, judge(last.values))]
    if worse(plain, seen[0][1]):
        seen += [(other, judge(other.values)) for other in others]
    helps = [one for one in seen if not worse(plain, one[1])]
    chosen, adapted = min(helps or seen, key=lambda one: _loss(one[1]))
    return Verdict(chosen, last, plain, adapted, seen[0][1])


def worse(plain: MetricSums, adapted: MetricSums) -> bool:
    """Whether the loss is larger by more than a thousandth, or the accuracy smaller by two standard errors.

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
    about = (plain.right + 1) / (plain.samples + 2)  # never 0 or 1, where the error would be 0
    return plain.accuracy - adapted.accuracy > 2 * sqrt(about * (1 - about) / max(1, plain.samples))


def _loss(tally: MetricSums) -> float:
    return tally.mean_loss if isfinite(tally.mean_loss) else float("inf")


def _shown(tally: MetricSums) -> str:
    accuracy = "" if tally.accuracy is None else f", accuracy {tally.accuracy:.1%}"
    return f"loss {tally.mean_loss:.4g}{accuracy}"
