"""What Gaussian noise is worth: epsilon, delta, and the noise that they need. Numbers only, no tensors.

k rounds with Gaussian noise are together one Gaussian mechanism (Dong, Roth, Su 2022), whose exact privacy is
known (Balle, Wang 2018).
"""

import math
from collections.abc import Mapping
from typing import Any

from ttpfl.errors import FederationError
from ttpfl.util.settings_kit import POSITIVE, PROBABILITY

SENSITIVITY = {"central": 1.0, "local": 2.0}
"""How far one site's data can move what noise is added to, in units of `clip`."""


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
    """The logarithm of the normal distribution at z <= 0, also where the distribution itself is 0."""
    tail = _tail(z)
    if tail > 1e-300:
        return math.log(tail)
    # An upper bound of the tail (Mills) would make delta too small; this lower bound is on the safe side.
    return -z * z / 2 - math.log(math.sqrt(2 * math.pi)) + math.log(-z / (1 + z * z))


def epsilon_of(noise: float, participations: int, delta: float, sensitivity: float = 1.0) -> float:
    """The epsilon of `participations` rounds with noise of `noise * clip`.

    Args:
        noise: standard deviation of the noise in units of `clip`.
        participations: rounds that the site took part in.
        delta: the probability with which the bound may fail.
        sensitivity: see `SENSITIVITY`.

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
    low, high = 0.0, 1.0
    while delta_of(high, mu) > delta:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high


def check_delta(delta: float) -> None:
    """Gaussian noise promises nothing at delta = 0, and nothing is promised by delta = 1.

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
    low, high = 0.0, 1.0
    while epsilon_of(high, participations, delta, sensitivity) > epsilon:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        costs_more = epsilon_of(middle, participations, delta, sensitivity) > epsilon
        low, high = (middle, high) if costs_more else (low, middle)
    return high


def in_words(record: Mapping[str, Any]) -> str:
    """What a round's record says of privacy; nothing if it has no noise.

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
