"""Differential privacy of the rates: clipping, Gaussian noise, and what it is worth.

What is protected is a site: whether its data took part at all. A site's influence is the change that it makes
to the rates, clipped to the norm `clip`.

- *central*: the server adds noise of standard deviation `noise * clip` to the sum of the changes. Protects
  against everybody who sees the rates, but not against the server.
- *local*: every site adds noise of the same size to its own change before it leaves. Protects against the
  server, too. The site's data may be anything else, so the change that noise has to hide is `2 * clip`.

k rounds with Gaussian noise are together one Gaussian mechanism (Dong, Roth, Su 2022), whose exact
privacy is known (Balle, Wang 2018). Nothing is claimed for the chance of not being drawn into a cohort: the
draw follows from a seed that is no secret.
"""

import hashlib
import math
import os
import secrets
from collections import Counter
from pathlib import Path
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

from ttpfl.errors import FederationError
from ttpfl.learning import draw_cohort

Privacy = Literal["none", "central", "local"]

SENSITIVITY = {"central": 1.0, "local": 2.0}
"""How far one site's data can move what noise is added to, in units of `clip`."""

_KEY_BYTES = 32
_NORMAL = NormalDist()


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
    if delta_of(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high, mu) > delta:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle, mu) > delta else (low, middle)
    return high


def noise_for(epsilon: float, participations: int, delta: float, sensitivity: float = 1.0) -> float:
    """The least noise, in units of `clip`, with which `participations` rounds cost at most `epsilon`.

    >>> round(noise_for(epsilon=4.38, participations=16, delta=1e-5), 2)
    4.0
    """
    if math.isinf(epsilon):
        return 0.0
    if not epsilon > 0:
        raise FederationError(f"epsilon is {epsilon}: it must be positive")
    low, high = 0.0, 1.0
    while epsilon_of(high, participations, delta, sensitivity) > epsilon:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        costs_more = epsilon_of(middle, participations, delta, sensitivity) > epsilon
        low, high = (middle, high) if costs_more else (low, middle)
    return high


def clipped(change: Tensor, clip: float) -> Tensor:
    """The change, in double precision, shortened to the Euclidean norm `clip` if it is longer.

    >>> clipped(torch.tensor([3.0, 4.0]), clip=1.0)
    tensor([0.6000, 0.8000], dtype=torch.float64)
    """
    change = change.double()
    return change * min(1.0, clip / max(float(change.norm()), 1e-300))


def gaussian(key: bytes, *place: int, count: int) -> Tensor:
    """Standard normal numbers that nobody can tell without the key: the same for the same place.

    >>> one, other = gaussian(b"secret", 3, count=2), gaussian(b"secret", 4, count=2)
    >>> bool((one == gaussian(b"secret", 3, count=2)).all()), bool((one == other).any())
    (True, False)
    """
    said = b"".join(number.to_bytes(8, "big") for number in place)
    stream = hashlib.shake_256(b"ttpfl noise" + len(key).to_bytes(8, "big") + key + said).digest(8 * count)
    uniform = [int.from_bytes(stream[i : i + 8], "big") for i in range(0, 8 * count, 8)]
    # 53 bits, and a half, so that neither 0 nor 1 can come out.
    return torch.tensor(
        [_NORMAL.inv_cdf(((number >> 11) + 0.5) / 2**53) for number in uniform], dtype=torch.float64
    )


def new_key() -> bytes:
    """A key that nobody knows."""
    return secrets.token_bytes(_KEY_BYTES)


def kept_key(directory: Path | None) -> bytes:
    """The key of a run, which a resumed run finds again; only its owner can read the file."""
    if directory is None:
        return new_key()
    path = directory / "noise.key"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(new_key())
            file.flush()
            os.fsync(file.fileno())
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise FederationError(f"{path} is damaged: begin a new run elsewhere")
    return key


class Participation:
    """How often the busiest client has been in a cohort: the one with the least privacy.

    >>> counts = Participation(clients=4, cohort=2, seed=0)
    >>> counts.most(rounds=1), counts.most(rounds=10)
    (1, 6)
    """

    def __init__(self, clients: int, cohort: int, seed: int) -> None:
        self._clients, self._cohort, self._seed = clients, cohort, seed
        self._counts: Counter[int] = Counter()
        self._rounds = 0

    def most(self, rounds: int) -> int:
        """After so many rounds; never fewer than at the last call."""
        for number in range(self._rounds, rounds):
            self._counts.update(draw_cohort(range(self._clients), self._cohort, self._seed, number))
        self._rounds = max(rounds, self._rounds)
        return max(self._counts.values(), default=0)
