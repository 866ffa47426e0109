"""Differential privacy of the rates: clipping and Gaussian noise.

The unit of privacy is a site: whether its data took part at all. A site's influence is its change of the
rates, clipped to the norm `clip`.

- *central*: the server adds noise of standard deviation `noise * clip` to the sum of the changes. Protects
  against everybody who sees the rates, except the server.
- *local*: every site adds noise of the same size to its change before sending it. Protects against the
  server, too. Other data could change the rates in the opposite direction, so the sensitivity is `2 * clip`.

`accountant.py` computes epsilon. There is no amplification by subsampling, because the seed that determines
the cohorts is public.
"""

import hashlib
import secrets
from pathlib import Path
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ttpfl.core.learning import draw_cohort
from ttpfl.errors import FederationError
from ttpfl.util.files import written_in_one_step
from ttpfl.util.reading import read_bytes

_KEY_BYTES = 32
_NORMAL = NormalDist()


def clipped(change: Tensor, clip: float) -> Tensor:
    """The change in double precision, scaled down to the Euclidean norm `clip` if it is longer.

    >>> clipped(torch.tensor([3.0, 4.0]), clip=1.0)
    tensor([0.6000, 0.8000], dtype=torch.float64)
    """
    change = change.double()
    return change * min(1.0, clip / max(float(change.norm()), 1e-300))


def gaussian(key: bytes, *place: int, count: int) -> Tensor:
    """Standard normal numbers that cannot be predicted without the key: the same for the same place.

    >>> third, fourth = gaussian(b"secret", 3, count=2), gaussian(b"secret", 4, count=2)
    >>> bool((third == gaussian(b"secret", 3, count=2)).all()), bool((third == fourth).any())
    (True, False)
    """
    suffix = b"".join(number.to_bytes(8, "big") for number in place)
    stream = hashlib.shake_256(b"ttpfl noise" + len(key).to_bytes(8, "big") + key + suffix).digest(8 * count)
    # 53 bits plus a half, so that the uniform number is neither 0 nor 1.
    uniform = [((number >> 11) + 0.5) / 2**53 for number in _integers(stream)]
    return torch.tensor([_NORMAL.inv_cdf(number) for number in uniform], dtype=torch.float64)


def _integers(content: bytes) -> list[int]:
    return [int.from_bytes(content[i : i + 8], "big") for i in range(0, len(content), 8)]


def noise_of_sum(key: bytes, number: int, total: Tensor, clients: int, scale: float) -> Tensor:
    """The noise of a round's sum: the same for the same sum and number of clients, fresh for any other.

    A round may be repeated after a crash, with different results of some clients. The difference of two sums
    with the same noise would reveal their changes; two sums with the same noise at different scales would
    reveal everything. `number` is that of the round, and `scale` the standard deviation of the noise.

    >>> noise = noise_of_sum(b"secret", 3, torch.tensor([1.0]), clients=5, scale=0.1)
    >>> torch.equal(noise, noise_of_sum(b"secret", 3, torch.tensor([1.0]), clients=5, scale=0.1))
    True
    >>> bool((noise == noise_of_sum(b"secret", 3, torch.tensor([2.0]), clients=5, scale=0.1)).any())
    False
    """
    digest = hashlib.sha256(torch.cat([total.double(), torch.tensor([scale]).double()]).numpy().tobytes())
    return scale * gaussian(key, number, clients, *_integers(digest.digest()), count=len(total))


def new_key() -> bytes:
    """A new random key."""
    return secrets.token_bytes(_KEY_BYTES)


def kept_key(directory: Path | None) -> bytes:
    """The key of a run, kept for resuming in a file that only its owner can read.

    The caller must hold the lock of the run's folder, so that only one process creates the key.
    """
    if directory is None:
        return new_key()
    path = directory / "noise.key"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with written_in_one_step(path, mode=0o600) as file:
            file.write(new_key())
    key = read_bytes(path)
    if len(key) != _KEY_BYTES:
        raise FederationError(f"{path} is damaged: start a new run in another folder")
    return key


class Participation:
    """Counts how often each client is in a cohort; the busiest one has the least privacy.

    >>> drawn = Participation(clients=4, cohort=2, seed=0)
    >>> drawn.counts(rounds=1), drawn.counts(rounds=10)
    (array([0, 0, 1, 1]), array([4, 5, 5, 6]))
    """

    def __init__(self, clients: int, cohort: int, seed: int) -> None:
        self._clients, self._cohort, self._seed = clients, cohort, seed
        self._counts = np.zeros(clients, np.int64)
        self._rounds = 0

    def counts(self, rounds: int) -> NDArray[np.int64]:
        """Counts per client after `rounds` rounds, which must not decrease between calls."""
        for number in range(self._rounds, rounds):
            self._counts[draw_cohort(range(self._clients), self._cohort, self._seed, number)] += 1
        self._rounds = max(rounds, self._rounds)
        return self._counts.copy()
