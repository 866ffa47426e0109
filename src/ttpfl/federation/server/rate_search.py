"""The search for rates: what the clients answered so far, and which rates to send them next.

Clients get rates and answer with their loss after adaptation and its slope in every rate; all steps are the
server's. The first answers are for rates of zero: they show the loss without adaptation, the scale of every
rate, and the shape of the curvature (where clients' slopes vary together, the loss is curved). The search
returns the best rates that are shown to help new clients (`evidence`), or zeros.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.rates import Rates
from ttpfl.errors import FederationError
from ttpfl.federation.server.agreement import proposed
from ttpfl.federation.server.answers import Answers
from ttpfl.federation.server.evidence import Change, loss_gain, shown_to_help
from ttpfl.federation.server.robust import Average
from ttpfl.federation.server.trust_region import Region, at, begun, decrease, judged

TOLERANCE = 1e-4
"""The search ends when the gain to expect from a step is below this fraction of the loss."""
SHORT = 0.01
"""Radius, in units of the first, below which the search has not converged but failed."""
OUTLIER = 3.0
"""Limit of slopes in units of their root mean square, where a client may be Byzantine."""
LARGEST_RATE, LARGEST_PRIOR_RATE = 1000.0, 3.0
"""Sites refuse larger rates by default. A calibrated model needs a rate of 1 for the label prior; much larger
ones are learned where batches tell little about a client, and harm where there are more samples."""
NEAR = 0.99
"""Fraction of its limit at which a rate is held."""
UNANSWERED = 0.01
"""How much shorter the next step is if too few clients answer to a trial, which they may refuse."""

REASONS = (
    "",
    f"converged: the next step would lower the loss by less than {TOLERANCE:.2%}",
    "no further step helps held-out clients",
    "even very short steps do not lower the loss",
    "a single client does not show what helps others: at least two are needed",
)
RUNNING, CONVERGED, NO_AGREEMENT, TOO_SHORT, ONE_CLIENT = range(len(REASONS))


class Tried(NamedTuple):
    """Rates, the clients' answers to them, and the round of these answers."""

    rates: Tensor
    answers: Answers
    round: int
    gain: Change | None
    """What they are expected to gain at a new client; None if too few clients can tell."""


@dataclass(frozen=True)
class RateSearch:
    """A search after some rounds; immutable."""

    region: Region
    plain: Answers
    """For rates of zero."""
    best: Answers
    """For the rates at the center of the region."""
    trial: Tensor
    """The rates to send next."""
    predicted: float
    """Decrease of the loss that the trial promises; zero for rates that were given."""
    limit: Tensor
    """The largest value of each rate."""
    result: Tried
    """The rates to return: the best so far that are shown to help new clients."""
    rounds: int = 1
    best_round: int = 0
    """The round that evaluated the center."""
    reason: int = RUNNING
    """Why the search ended; an index of `REASONS`."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything as tensors, for checkpoints; `restored` reads them."""
        region, result = self.region, self.result
        numbers = (region.radius, region.first_radius, region.measured, self.predicted)
        counts = (self.rounds, self.best_round, self.reason, result.round)
        parts = {"center": region.center, "unit": region.unit, "curvature": region.curvature}
        parts["numbers"] = torch.tensor([*numbers, *counts], dtype=torch.float64)
        for name, answers in (("plain", self.plain), ("best", self.best), ("result", result.answers)):
            parts |= {f"{name}.{part}": value for part, value in answers._asdict().items()}
        gain = torch.tensor(result.gain or [], dtype=torch.float64)
        return {**parts, "trial": self.trial, "limit": self.limit, "result": result.rates, "gain": gain}


def restored(tensors: dict[str, Tensor]) -> RateSearch:
    """The search that `RateSearch.tensors` described."""
    if "gain" not in tensors or ("prior" in tensors and "best_prior" not in tensors):
        raise FederationError("the checkpoint is of an earlier version of ttpfl: begin the run again")
    radius, first_radius, measured, predicted, *counts = tensors["numbers"].tolist()
    plain, best, last = (
        Answers(*(tensors[f"{name}.{part}"] for part in Answers._fields))
        for name in ("plain", "best", "result")
    )
    rounds, best_round, reason, result_round = map(int, counts)
    change = tensors["gain"].tolist()
    gain = Change(change[0], change[1], change[2], int(change[3])) if change else None
    radii = (radius, first_radius)
    return RateSearch(
        Region(tensors["center"], tensors["unit"], tensors["curvature"], *radii, bool(measured)),
        *(plain, best, tensors["trial"], predicted, tensors["limit"]),
        Tried(tensors["result"], last, result_round, gain),
        *(rounds, best_round, reason),
    )


def limits(rates: Rates) -> Tensor:
    """The largest value of each rate."""
    each = (LARGEST_PRIOR_RATE if LABEL_PRIOR in names else LARGEST_RATE for names in rates.members.values())
    return torch.tensor(list(each), dtype=torch.float64)


def started(answers: Answers, average: Average, given: Tensor, limit: Tensor) -> RateSearch:
    """The search after the answers to rates of zero; it tries rates that are not zero, if given, next."""
    mean_square = average.mean_square(answers.slopes)
    unit = torch.where(mean_square > 0, mean_square.clamp(min=1e-300).rsqrt(), 0.0)
    unit = torch.where(unit < 1e12, unit, 0.0)  # a slope of almost zero is rounding
    slopes = answers.slopes * unit
    zeros, loss = torch.zeros_like(unit), average.of_numbers(answers.losses)
    robust = slopes if average.kind == "mean" else slopes.clamp(-OUTLIER, OUTLIER)
    region = begun(zeros, loss, average.of_rows(slopes), unit, _shape(robust))
    enough = len(answers.clients) >= max(2, average.fewest)
    nothing = Tried(zeros, answers, 0, Change(0.0, 0.0, 0.0, len(answers.clients)) if enough else None)
    search = RateSearch(region, answers, answers, given.double(), 0.0, limit, nothing)
    tries_given = bool(given.any()) and len(answers.clients) > 1
    return search if tries_given else _with_trial(search, average)


def advanced(
    search: RateSearch, answers: Answers, average: Average, number: int | None = None, check: bool = True
) -> RateSearch:
    """The search after the answers to its trial; losses are compared for clients that answered both times.

    Args:
        search: the search before.
        answers: answers to its trial.
        average: the average over clients.
        number: the round of the answers, if it is not the next one.
        check: only return rates that are shown to help; else those with the lowest loss.
    """
    region, unit = search.region, search.region.unit
    before, after = search.best.of(answers.clients), answers.of(search.best.clients)
    number = search.rounds if number is None else number
    search = replace(search, rounds=search.rounds + 1)
    if len(after.clients) < min(max(2, average.fewest), len(search.plain.clients)):
        return search  # too few of these clients can compare: ask again
    step = _step(search)
    change = average.of_numbers(after.losses - before.losses)
    slope_change = (average.of_rows(after.slopes) - average.of_rows(before.slopes)) * unit
    region, accepted = judged(region, step, search.predicted, change, slope_change)
    # Exactly the rates that were sent, not those that the step leads to up to rounding.
    center = search.trial if accepted else search.region.center
    search = replace(search, region=replace(region, center=center))
    if accepted:
        search = replace(search, best=answers, best_round=number)
        if not check or shown_to_help(search.region, search.plain, answers, average):
            gain = loss_gain(search.region, search.plain, answers, average)
            search = replace(search, result=Tried(search.trial, answers, number, gain))
    return _with_trial(search, average)


def shortened(search: RateSearch, average: Average) -> RateSearch:
    """The search with a much shorter step, after a trial that too few clients answered.

    The step keeps its direction, so that every rate is closer to the last one that clients accepted. A new
    step within a smaller region could have larger rates for modules that hardly matter.
    """
    region, whole = search.region, _step(search)
    step = UNANSWERED * whole
    radius = UNANSWERED * min(region.radius, float(whole.norm()))
    slope = average.of_rows(search.best.slopes) * region.unit
    predicted = max(0.0, float(decrease(region, slope[None], step[None])))
    trial = at(region, step).float().double()
    return replace(search, region=replace(region, radius=radius), trial=trial, predicted=predicted)


def _step(search: RateSearch) -> Tensor:
    """From the center to the trial, in units."""
    region = search.region
    return torch.where(region.unit > 0, (search.trial - region.center) / region.unit, 0.0)


def expected_gain(search: RateSearch) -> dict[str, Any]:
    """Decrease of the loss to expect at a new client, with a 90 % interval for the mean over such clients."""
    if search.result.gain is None:
        return {}
    mean, low, high, clients = search.result.gain
    return {"gain": mean, "interval": [low, high], "clients": clients}


def _with_trial(search: RateSearch, average: Average) -> RateSearch:
    """The search with its next trial, or with the reason for its end."""
    if len(search.best.clients) < 2:
        return replace(search, reason=ONE_CLIENT)
    region, proposal = search.region, None
    if region.radius > 0:
        proposal = proposed(region, _free_slopes(search, average), average)
    if proposal is None:
        return replace(search, reason=NO_AGREEMENT)
    # Rounded as it is sent, so that the server knows the point exactly.
    trial = at(region, proposal.step).clamp(-search.limit, search.limit).float().double()
    loss = abs(average.of_numbers(search.best.losses))
    done = min(proposal.expected, proposal.predicted) < TOLERANCE * loss
    reason = RUNNING
    if done:
        reason = TOO_SHORT if region.radius < SHORT * region.first_radius else CONVERGED
    return replace(search, trial=trial, predicted=proposal.predicted, reason=reason)


def _free_slopes(search: RateSearch, average: Average) -> Tensor:
    """The clients' slopes in units; zero for rates that are at their limit and would go beyond it."""
    slopes, rates = search.best.slopes, search.region.center
    beyond = (rates.abs() > NEAR * search.limit) & (average.of_rows(slopes) * rates < 0)
    return torch.where(beyond, 0.0, slopes * search.region.unit)


def _shape(slopes: Tensor) -> Tensor:
    """The curvature up to a factor: the mean product of the clients' slopes, with unit diagonal.

    With few clients it is hardly known, and closer to the identity.
    """
    clients, rates = slopes.shape
    products = slopes.T @ slopes
    size = products.diagonal().clamp(min=1e-300).sqrt()
    products = products / torch.outer(size, size)
    share = clients / (clients + 2 * rates)
    return share * products + (1 - share) * torch.eye(rates, dtype=slopes.dtype)
