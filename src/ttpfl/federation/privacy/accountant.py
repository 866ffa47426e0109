"""Privacy of Gaussian noise: epsilon, delta, and the noise they require. Plain numbers, no tensors.

k rounds with Gaussian noise are equivalent to a single Gaussian mechanism (Dong, Roth, Su 2022), whose exact
privacy is known (Balle, Wang 2018).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ttpfl.errors import FederationError
from ttpfl.util.settings_kit import POSITIVE, PROBABILITY

SENSITIVITY = {"central": 1.0, "local": 2.0}
"""The largest effect of one site's data on the quantity that gets noise, in units of `clip`."""


def delta_of(epsilon: float, mu: float) -> float:
    """The exact delta of a Gaussian mechanism with sensitivity / noise = `mu`, at `epsilon`.

    >>> round(delta_of(1.0, 1.0), 4)
    0.1269
    """
    near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    # exp(epsilon) alone may overflow where its product with a tiny tail does not.
    return max(0.0, _tail(near) - math.exp(epsilon + _log_tail(far)))


def _tail(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _log_tail(z: float) -> float:
    """The logarithm of the normal distribution at z <= 0, also where the distribution underflows to 0."""
    tail = _tail(z)
    if tail > 1e-300:
        return math.log(tail)
    # An upper bound of the tail (Mills) would make delta too small; this lower bound is on the safe side.
    return -z * z / 2 - math.log(math.sqrt(2 * math.pi)) + math.log(-z / (1 + z * z))


def epsilon_of(noise: float, participations: int, delta: float, sensitivity: float = 1.0) -> float:
    """The epsilon for a site in `participations` rounds, with noise of standard deviation `noise * clip`.

    `delta` is the probability with which the bound may fail. For `sensitivity`, see `SENSITIVITY`.

    >>> round(epsilon_of(noise=4.0, participations=16, delta=1e-5), 2)
    4.38
    >>> epsilon_of(noise=0.0, participations=1, delta=1e-5)
    inf
    """
    if participations == 0:
        return 0.0
    if noise == 0:
        return math.inf
    return epsilon_of_mu(sensitivity * math.sqrt(participations) / noise, delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The smallest epsilon, rounded up in the tenth digit, for which `delta_of(epsilon, mu) <= delta`."""
    check_delta(delta)
    if delta_of(0.0, mu) <= delta:
        return 0.0
    return _least(lambda epsilon: delta_of(epsilon, mu) <= delta, 1e-10)


def _least(holds: Callable[[float], bool], tolerance: float) -> float:
    """The smallest positive number, up to a relative tolerance above, from which on `holds` is true."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def check_delta(delta: float) -> None:
    """Check that delta is above 0, where Gaussian noise has no bound, and below 1, which promises nothing.

    >>> check_delta(1e5)
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: delta must be a number above 0 and below 1, got 100000.0; try 1e-5
    """
    PROBABILITY.check(FederationError, "; try 1e-5", delta=delta)


def noise_for(epsilon: float, participations: int, delta: float, sensitivity: float = 1.0) -> float:
    """The least noise, in units of `clip`, with which `participations` rounds cost at most `epsilon`.

    >>> round(noise_for(epsilon=4.38, participations=16, delta=1e-5), 2)
    4.0
    """
    check_delta(delta)
    if math.isinf(epsilon):
        return 0.0
    POSITIVE.check(FederationError, epsilon=epsilon)
    return _least(lambda noise: epsilon_of(noise, participations, delta, sensitivity) <= epsilon, 1e-9)


def in_words(record: Mapping[str, Any]) -> str:
    """The privacy in a round's record; empty if it was not private.

    >>> in_words({"round": 3, "epsilon": 2.0, "delta": 1e-5})
    'epsilon 2 at delta 1e-05'
    >>> in_words({"round": 3, "epsilon": None, "delta": 1e-5, "no_bound": "learned without privacy"})
    'no privacy bound, epsilon is infinite (learned without privacy)'
    """
    if "epsilon" not in record:
        return ""
    if record["epsilon"] is None:
        reason = f" ({record['no_bound']})" if "no_bound" in record else ""
        return f"no privacy bound, epsilon is infinite{reason}"
    return f"epsilon {record['epsilon']:.4g} at delta {record['delta']:g}"
