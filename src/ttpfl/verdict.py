"""Whether learned rates help on clients that they were learned from; if not, what to return instead."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.errors import RatesWarning
from ttpfl.tally import Tally

ROUNDING = 1e-3
"""The part of the loss that does not count as a difference."""


class Candidate(NamedTuple):
    """Rates after so many rounds."""

    rounds: int
    values: Tensor


@dataclass(frozen=True)
class Verdict:
    """What is returned, and how it compares with no adaptation on the source clients."""

    chosen: Candidate
    last: Candidate
    plain: Tally
    adapted: Tally
    """With the chosen rates."""
    adapted_last: Tally

    def recorded(self) -> dict[str, Any]:
        """Plain numbers, to be kept with the rates."""
        return {
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
            return f"{said}. Those of the best round are no better, so rates of zero are returned: {again}"
        return f"{returned}; lower lr for better ones"


def verdict(last: Candidate, others: Sequence[Candidate], judge: Callable[[Tensor], Tally]) -> Verdict:
    """Return the last rates unless they are worse than none; then the first of the others that are not.

    Args:
        last: what learning ended with.
        others: earlier rates to go back to, in the order of preference.
        judge: loss and accuracy over all source clients after adaptation with rates of these values; without
            adaptation for zeros. It is called for the others only if the last are worse.

    >>> import torch
    >>> losses = {0.0: 2.0, 1.0: 1.5, 9.0: 4.0}
    >>> judge = lambda values: Tally(samples=10, loss=10 * losses[float(values)], right=None)
    >>> good, bad = (Candidate(rounds, torch.tensor(float(rounds))) for rounds in (1, 9))
    >>> verdict(good, [], judge).chosen.rounds, verdict(bad, [good], judge).chosen.rounds
    (1, 1)
    """
    plain = judge(torch.zeros_like(last.values))
    seen = [(last, judge(last.values))]
    for other in others if worse(plain, seen[0][1]) else ():
        seen.append((other, judge(other.values)))
        if not worse(plain, seen[-1][1]):
            break
    helps = [one for one in seen if not worse(plain, one[1])]
    chosen, adapted = helps[0] if helps else min(seen, key=lambda one: _loss(one[1]))
    return Verdict(chosen, last, plain, adapted, seen[0][1])


def warn_of(found: Verdict) -> None:
    """Say it to whoever called the library, if there is anything to say."""
    if found.warning is not None:
        warnings.warn(found.warning, RatesWarning, stacklevel=3)


def worse(plain: Tally, adapted: Tally) -> bool:
    """Whether the loss is larger by more than a thousandth, or the accuracy smaller by two standard errors.

    >>> plain = Tally(samples=1000, loss=500.0, right=889)
    >>> worse(plain, Tally(1000, 400.0, 880)), worse(plain, Tally(1000, 400.0, 760))
    (False, True)
    >>> worse(plain, Tally(1000, 502.0, 889))
    True
    """
    rise = _loss(adapted) - plain.mean_loss
    if rise > ROUNDING * abs(plain.mean_loss):
        return True
    if plain.right is None or plain.accuracy is None or adapted.accuracy is None:
        return False
    about = (plain.right + 1) / (plain.samples + 2)  # never 0 or 1, where the error would be 0
    return plain.accuracy - adapted.accuracy > 2 * sqrt(about * (1 - about) / max(1, plain.samples))


def _loss(tally: Tally) -> float:
    return tally.mean_loss if isfinite(tally.mean_loss) else float("inf")


def _shown(tally: Tally) -> str:
    accuracy = "" if tally.accuracy is None else f", accuracy {tally.accuracy:.1%}"
    return f"loss {tally.mean_loss:.4g}{accuracy}"
