"""Differential privacy of the rates: clipping, Gaussian noise, and what it is worth.

What is protected is a site: whether its data took part at all. A site's influence is the change that it makes
to the rates, clipped to the norm `clip`.

- *central*: the server adds noise of standard deviation `noise * clip` to the sum of the changes. Protects
  against everybody who sees the rates, but not against the server.
- *local*: every site adds noise of the same size to its own change before it leaves. Protects against the
  server, too. The site's data may be anything else, so the change that noise has to hide is `2 * clip`.

What that is worth, `accountant.py` says. Nothing is claimed for the chance of not being drawn into a cohort:
the draw follows from a seed that is no secret.
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


def noise_of_sum(key: bytes, number: int, total: Tensor, clients: int, scale: float) -> Tensor:
    """The noise of a round's sum: the same for the same sum of as many clients, fresh for any other.

    A round may be repeated after a crash, and not all clients need answer the same way again. The
    difference of two sums with the same noise would show how they changed, and two sums with the same noise
    at two scales would show everything.

    Args:
        key: the run's secret.
        number: of the round.
        total: the sum.
        clients: how many it is over.
        scale: standard deviation of the noise.

    >>> one, other = torch.tensor([1.0]), torch.tensor([2.0])
    >>> noise = noise_of_sum(b"secret", 3, one, clients=5, scale=0.1)
    >>> torch.equal(noise, noise_of_sum(b"secret", 3, one, clients=5, scale=0.1))
    True
    >>> bool((noise == noise_of_sum(b"secret", 3, other, clients=5, scale=0.1)).any())
    False
    """
    digest = hashlib.sha256(torch.cat([total.double(), torch.tensor([scale]).double()]).numpy().tobytes())
    place = [int.from_bytes(digest.digest()[i : i + 8], "big") for i in range(0, digest.digest_size, 8)]
    return scale * gaussian(key, number, clients, *place, count=len(total))


def new_key() -> bytes:
    """A key that nobody knows."""
    return secrets.token_bytes(_KEY_BYTES)


def kept_key(directory: Path | None) -> bytes:
    """The key of a run, which a resumed run finds again; only its owner can read the file.

    Whoever asks should hold the run's folder: of two that make a key at once, one would lose its own.
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
        raise FederationError(f"{path} is damaged: begin a new run elsewhere")
    return key


class Participation:
    """How often each client has been in a cohort; the busiest one has the least privacy.

    >>> drawn = Participation(clients=4, cohort=2, seed=0)
    >>> drawn.counts(rounds=1), drawn.counts(rounds=10)
    (array([0, 0, 1, 1]), array([4, 5, 5, 6]))
    """

    def __init__(self, clients: int, cohort: int, seed: int) -> None:
        self._clients, self._cohort, self._seed = clients, cohort, seed
        self._counts = np.zeros(clients, np.int64)
        self._rounds = 0

    def counts(self, rounds: int) -> NDArray[np.int64]:
        """After so many rounds, for every client; not fewer rounds than at the last call."""
        for number in range(self._rounds, rounds):
            self._counts[draw_cohort(range(self._clients), self._cohort, self._seed, number)] += 1
        self._rounds = max(rounds, self._rounds)
        return self._counts.copy()
