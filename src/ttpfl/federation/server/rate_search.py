"""The search for rates: what the clients answered so far, and which rates to send them next.

Clients get rates and answer with their loss after adaptation and its slope in every rate; all steps are the
server's. The first answers are for rates of zero: they show the loss without adaptation, the scale of every
rate, and the shape of the curvature (where clients' slopes vary together, the loss is curved). The search
never returns rates that are worse than zeros, neither in the loss nor in the accuracy of the source clients.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.rates import Rates
from ttpfl.federation.common.student import half_width
from ttpfl.federation.server.agreement import losses_left_out, proposed
from ttpfl.federation.server.robust import Average
from ttpfl.federation.server.trust_region import Region, at, begun, judged

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
UNKNOWN = -1
"""In place of the number of correct predictions, if labels are not one class per sample."""

REASONS = (
    "",
    f"converged: the next step would lower the loss by less than {TOLERANCE:.2%}",
    "no further step helps held-out clients",
    "even very short steps do not lower the loss",
    "a single client does not show what helps others: at least two are needed",
)
RUNNING, CONVERGED, NO_AGREEMENT, TOO_SHORT, ONE_CLIENT = range(len(REASONS))


class Answers(NamedTuple):
    """The clients' answers to the same rates, one row per client, sorted by client."""

    clients: Tensor
    losses: Tensor
    slopes: Tensor
    samples: Tensor
    right: Tensor
    """Correct predictions, or `UNKNOWN`."""

    def of(self, clients: Tensor) -> "Answers":
        """The answers of these clients."""
        rows = torch.isin(self.clients, clients)
        return Answers(*(part[rows] for part in self))

    @property
    def accuracies(self) -> Tensor | None:
        """Accuracy of each client; None if labels are not one class per sample."""
        return None if bool((self.right == UNKNOWN).any()) else self.right / self.samples.double()

    def figures(self, name: str, average: Average) -> dict[str, float]:
        """Average loss and accuracy (if defined) over clients, as in records."""
        loss, accuracies = {f"{name}_loss": average.of_numbers(self.losses)}, self.accuracies
        return loss if accuracies is None else {**loss, f"{name}_accuracy": average.of_numbers(accuracies)}


class Tried(NamedTuple):
    """Rates, the clients' answers to them, and the round of these answers."""

    rates: Tensor
    answers: Answers
    round: int


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
    """The rates to return: the best so far that do not lower the accuracy."""
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
        return {**parts, "trial": self.trial, "limit": self.limit, "result": result.rates}


def restored(tensors: dict[str, Tensor]) -> RateSearch:
    """The search that `RateSearch.tensors` described."""
    radius, first_radius, measured, predicted, *counts = tensors["numbers"].tolist()
    plain, best, last = (
        Answers(*(tensors[f"{name}.{part}"] for part in Answers._fields))
        for name in ("plain", "best", "result")
    )
    rounds, best_round, reason, result_round = map(int, counts)
    radii = (radius, first_radius)
    return RateSearch(
        Region(tensors["center"], tensors["unit"], tensors["curvature"], *radii, bool(measured)),
        *(plain, best, tensors["trial"], predicted, tensors["limit"]),
        Tried(tensors["result"], last, result_round),
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
    search = RateSearch(region, answers, answers, given.double(), 0.0, limit, Tried(zeros, answers, 0))
    tries_given = bool(given.any()) and len(answers.clients) > 1
    return search if tries_given else _with_trial(search, average)


def advanced(search: RateSearch, answers: Answers, average: Average, number: int | None = None) -> RateSearch:
    """The search after the answers to its trial; losses are compared for clients that answered both times.

    `number` is the round of the answers, if it is not the next one.
    """
    region, unit = search.region, search.region.unit
    before, after = search.best.of(answers.clients), answers.of(search.best.clients)
    number = search.rounds if number is None else number
    search = replace(search, rounds=search.rounds + 1)
    if len(after.clients) < min(max(2, average.fewest), len(search.plain.clients)):
        return search  # too few of these clients can compare: ask again
    step = torch.where(unit > 0, (search.trial - region.center) / unit, 0.0)
    change = average.of_numbers(after.losses - before.losses)
    slope_change = (average.of_rows(after.slopes) - average.of_rows(before.slopes)) * unit
    region, accepted = judged(region, step, search.predicted, change, slope_change)
    # Exactly the rates that were sent, not those that the step leads to up to rounding.
    center = search.trial if accepted else search.region.center
    search = replace(search, region=replace(region, center=center))
    if accepted:
        search = replace(search, best=answers, best_round=number)
        if not _less_accurate(search.plain, answers, average):
            search = replace(search, result=Tried(search.trial, answers, number))
    return _with_trial(search, average)


def _less_accurate(plain: Answers, answers: Answers, average: Average) -> bool:
    """Whether the clients are less accurate than without adaptation, on average and beyond a standard error.

    A lower loss does not rule this out: rates can make wrong predictions less confident, and more of them.
    """
    after = answers.of(plain.clients)
    before, now = plain.of(after.clients).accuracies, after.accuracies
    if before is None or now is None:
        return False
    changes = now - before
    variance = float(average.variance(changes[:, None])[0]) if len(changes) > 1 else 0.0
    return average.of_numbers(changes) < -math.sqrt(variance / len(changes))


def expected_gain(search: RateSearch, average: Average) -> dict[str, Any]:
    """Decrease of the loss to expect at a new client, with a 95 % interval for the mean over such clients."""
    found = search.result.answers.of(search.plain.clients)
    plain = search.plain.of(found.clients)
    slopes = found.slopes * search.region.unit
    if len(found.clients) < max(2, average.fewest):
        return {}
    if not search.result.round:  # rates of zero change nothing
        return {"gain": 0.0, "interval": [0.0, 0.0], "clients": len(found.clients)}
    gains = plain.losses - losses_left_out(search.region, found.losses, slopes, average)
    gain = average.of_numbers(gains)
    width = half_width(float(average.variance(gains[:, None])[0]), len(gains))
    return {"gain": gain, "interval": [gain - width, gain + width], "clients": len(gains)}


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
