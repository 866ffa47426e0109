"""The guard: what source clients teach about harm, as a part of a rates file.

*Limits* bound the influence of a batch and of a sample. The *estimator* tells without labels how unusual
adaptation looks, and how much it gains.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ttpfl.core.gain import COEFFICIENTS, Coefficients
from ttpfl.core.privacy_record import digest
from ttpfl.errors import RatesFileError


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

    numbers: tuple[float, ...]
    """The `Coefficients` in `ttpfl.core.gain`."""
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
        return Coefficients.of(torch.tensor(self.numbers, dtype=torch.float64))


@dataclass(frozen=True)
class Guard:
    """What source clients teach about harm."""

    limits: Limits
    estimator: Estimator | None = None
    """None if the model does not predict classes."""
    values: str = ""
    """Digest of the rates that it was learned for."""

    def covers(self, values: Tensor) -> bool:
        """Whether the guard was learned for exactly these rates; true if it does not say."""
        return not self.values or self.values == digest(values)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the card of a rates file."""
        return asdict(self)

    @classmethod
    def from_json(cls, card: Mapping[str, Any]) -> "Guard":
        """The guard in the card of a rates file; raises a RatesFileError if it is not valid."""
        parts = ((Limits, card["limits"]), (Estimator, card["estimator"]))
        if any(part is not None and part.keys() != kind.__annotations__.keys() for kind, part in parts):
            raise RatesFileError("has a guard of another version of ttpfl: learn the rates again")
        limits = Limits(**card["limits"])
        if type(limits.batch_size) is not int or limits.batch_size < 1:
            raise RatesFileError(f"has a guard for batches of {limits.batch_size!r} samples")
        numbers = [*limits.norms.values(), *limits.jumps.values(), limits.spread, limits.batch_size]
        estimator = None
        if card["estimator"] is not None:
            fields = dict(card["estimator"])
            estimator = Estimator(**fields | {"numbers": tuple(map(float, fields["numbers"]))})
            if len(estimator.numbers) != COEFFICIENTS:
                raise RatesFileError("has a guard of another version of ttpfl: learn the rates again")
            numbers += map(abs, estimator.numbers)
            numbers += [estimator.gain_error, estimator.plain_error, estimator.false_alarms]
        if not all(
            isinstance(number, (int, float)) and number >= 0 and isfinite(number) for number in numbers
        ):
            raise RatesFileError("has a guard whose numbers are not finite, or negative")
        if not isinstance(card.get("values", ""), str):
            raise RatesFileError("has a guard whose digest of the rates is no text")
        return cls(limits, estimator, card.get("values", ""))
