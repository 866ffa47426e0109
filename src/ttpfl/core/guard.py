"""The guard: what source clients teach about harm, as a part of a rates file.

*Limits* bound the influence of a batch and of a sample. The *estimator* tells without labels how unusual
adaptation looks, and how much it gains.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch

from ttpfl.core.gain import FIGURES, GAIN, RIGHT, Coefficients
from ttpfl.errors import RatesFileError

LENGTHS = {"gain": GAIN, "right": RIGHT, "centre": FIGURES, "precision": FIGURES**2}
"""Of the coefficients of an estimator."""


@dataclass(frozen=True)
class Limits:
    """How far the batches and the samples of source clients go."""

    norms: dict[str, float]
    """Limit of the norm of each module's direction."""
    jumps: dict[str, float]
    """Limit of the distance of each module's direction from the mean of the batches before."""
    spread: float
    """Limit of the distance of a sample's log size from the median of its stream."""
    batch_size: int
    """Of the source clients. Directions of smaller batches vary more."""


@dataclass(frozen=True)
class Estimator:
    """Estimates the gain of a stream without labels, and how far off it is."""

    gain: tuple[float, ...]
    right: tuple[float, ...]
    centre: tuple[float, ...]
    precision: tuple[float, ...]
    """The `Coefficients` in `ttpfl.core.gain`; the precision matrix by rows."""
    false_alarms: float
    """Probability of an alarm at a client like the source clients that gains."""
    gain_error: float
    plain_error: float
    """Root mean square errors of the estimated gain and accuracy at held-out source clients."""
    measured: dict[str, Any]
    """Error rates at held-out source clients."""

    @property
    def coefficients(self) -> Coefficients:
        """As tensors."""
        parts = (self.gain, self.right, self.centre, self.precision)
        gain, right, centre, precision = (torch.tensor(part, dtype=torch.float64) for part in parts)
        return Coefficients(gain, right, centre, precision.reshape(FIGURES, FIGURES))


@dataclass(frozen=True)
class Guard:
    """What source clients teach about harm."""

    limits: Limits
    estimator: Estimator | None = None
    """None if the model does not predict classes."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the card of a rates file."""
        return asdict(self)

    @classmethod
    def from_json(cls, card: Mapping[str, Any]) -> "Guard":
        """The guard in the card of a rates file; raises a RatesFileError if it is not valid."""
        limits = Limits(**card["limits"])
        numbers = [*limits.norms.values(), *limits.jumps.values(), limits.spread, limits.batch_size]
        estimator = None
        if card["estimator"] is not None:
            fields = dict(card["estimator"])
            if not LENGTHS.keys() <= fields.keys():
                raise RatesFileError("has a guard of another version: learn the rates again")
            fields |= {name: tuple(map(float, fields[name])) for name in LENGTHS}
            estimator = Estimator(**fields)
            if any(len(fields[name]) != length for name, length in LENGTHS.items()):
                raise RatesFileError("has a guard with another number of coefficients: upgrade ttpfl")
            numbers += [abs(number) for name in LENGTHS for number in fields[name]]
            numbers += [estimator.gain_error, estimator.plain_error, estimator.false_alarms]
        if not all(
            isinstance(number, (int, float)) and number >= 0 and isfinite(number) for number in numbers
        ):
            raise RatesFileError("has a guard whose numbers are not finite, or negative")
        return cls(limits, estimator)
