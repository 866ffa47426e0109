"""Whether rates are shown to help new clients, judged by the differences between the source clients.

A lower mean loss of the source clients is not enough. They chose the rates, so they gain more than others.
With few clients, or clients that differ much, the mean is partly chance. And rates can lower the loss and the
accuracy at once, when they make wrong predictions less confident, and more of them. So both the loss of
clients that are left out and the accuracy must improve beyond chance, in one-sided t-tests over clients at a
level of 5 %.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from ttpfl.federation.common.student import half_width
from ttpfl.federation.server.agreement import losses_left_out
from ttpfl.federation.server.answers import UNKNOWN, Answers
from ttpfl.federation.server.robust import Average
from ttpfl.federation.server.trust_region import Region


class Change(NamedTuple):
    """The mean of a change over clients, and a 90 % interval for the mean over clients like them.

    Each end is the limit of a one-sided test at the level of 5 %.
    """

    mean: float
    low: float
    high: float
    clients: int


def loss_gain(region: Region, plain: Answers, answers: Answers, average: Average) -> Change | None:
    """By how much rates lower the loss of a client that is left out; None if too few clients can tell.

    Args:
        region: the region around the rates.
        plain: answers to rates of zero.
        answers: answers to the rates.
        average: the average over clients.
    """
    before, after = plain.of(answers.clients), answers.of(plain.clients)
    if len(after.clients) < max(2, average.fewest):
        return None
    # A radius that shrank would hide how far the search goes without a client.
    wide = replace(region, radius=max(region.radius, region.first_radius))
    left_out = losses_left_out(wide, after.losses, after.slopes * region.unit, average)
    return _change(before.losses - left_out, average)


def accuracy_gain(plain: Answers, answers: Answers, average: Average) -> Change | None:
    """By how much rates raise the accuracy; None if no client has one.

    A client that leaves it out has no say, so that it cannot disable the test for the others. With a robust
    average, every client has the same say: it is better (1), worse (-1) or the same (0). Robust estimates of
    the spread would be zero, since many clients have exactly the same change.
    """
    before, after = plain.of(answers.clients), answers.of(plain.clients)
    known = (before.right != UNKNOWN) & (after.right != UNKNOWN)
    if not bool(known.any()):
        return None
    changes = (after.right / after.samples - before.right / before.samples)[known]
    if len(changes) < max(2, average.fewest):
        return Change(0.0, -math.inf, math.inf, len(changes))
    if average.kind != "mean":
        return _change(changes.double().sign(), Average("mean"))
    return _change(changes.double(), average)


def shown_to_help(region: Region, plain: Answers, answers: Answers, average: Average) -> bool:
    """Whether loss and accuracy (if defined) of new clients will improve, beyond chance."""
    loss, accuracy = loss_gain(region, plain, answers, average), accuracy_gain(plain, answers, average)
    return loss is not None and loss.low > 0 and (accuracy is None or accuracy.low > 0)


def _change(changes: Tensor, average: Average) -> Change:
    mean = average.of_numbers(changes)
    width = half_width(float(average.variance(changes[:, None])[0]), len(changes))
    return Change(mean, mean - width, mean + width, len(changes))
