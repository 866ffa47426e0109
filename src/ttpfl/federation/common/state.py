"""Where a run is: all that is needed to go on."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ttpfl.core.rates_check import Kept

Record = dict[str, Any]
"""One round in numbers. Nothing in it depends on the machine, so that runs can be compared."""

Report = dict[str, Any]
"""What a client says beside its vector: plain numbers and text."""


@dataclass
class RunState:
    """A run after `round` rounds."""

    vector: Tensor
    """The global model's state, or the rates."""
    round: int = 0
    history: list[Record] = field(default_factory=list)
    local: dict[int, Tensor] = field(default_factory=dict)
    """What stays with clients between rounds, by client."""
    best: Tensor | None = None
    """The vector with the smallest loss, where it is looked for."""
    best_loss: float = float("inf")
    best_round: int = 0
    """How many rounds `best` has seen."""
    stopped: bool = False
    """Whether a callback found that it is enough."""
    kept: dict[int, Kept] = field(default_factory=dict)
    """Earlier rates to go back to, where they are kept; see `ttpfl.core.rates_check.keep`."""

    @property
    def result(self) -> Tensor:
        """What the run is for.

        A vector is judged in the round that begins with it, so the last one never is. It is taken if the one
        before it was the best so far: then the loss was still falling.
        """
        return self.vector if self.best is None or self.result_round == self.round else self.best

    @property
    def result_round(self) -> int:
        """How many rounds the result has seen."""
        falling = self.best is None or self.best_round == self.round - 1
        return self.round if falling else self.best_round
