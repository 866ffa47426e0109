"""State of a run: everything needed to resume it."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ttpfl.core.rates_check import Kept

Record = dict[str, Any]
"""Metrics of one round. They do not depend on the machine, so runs can be compared."""

Report = dict[str, Any]
"""Plain numbers and text that a client returns along with its vector."""


@dataclass
class RunState:
    """A run after `round` rounds."""

    vector: Tensor
    """The global model's state, or the rates."""
    round: int = 0
    history: list[Record] = field(default_factory=list)
    local: dict[int, Tensor] = field(default_factory=dict)
    """Tensors that stay with clients between rounds, by client."""
    best: Tensor | None = None
    """The vector with the lowest validation loss, if early stopping is on."""
    best_loss: float = float("inf")
    best_round: int = 0
    """Number of rounds that led to `best`."""
    stopped: bool = False
    """Whether a callback ended the run early."""
    kept: dict[int, Kept] = field(default_factory=dict)
    """Earlier rates that can be returned instead of the last; see `ttpfl.core.rates_check.keep`."""
    memory: dict[str, Tensor] = field(default_factory=dict)
    """What the server keeps between rounds; it is replaced, never changed in place."""

    @property
    def current(self) -> Tensor:
        """The best vector so far if the server keeps one in its memory, else the last."""
        if "result" not in self.memory:
            return self.vector
        parts = [self.memory[name] for name in ("result", "result_prior") if name in self.memory]
        return torch.cat(parts).to(self.vector)

    @property
    def result(self) -> Tensor:
        """The vector to return.

        A vector is evaluated in the round that starts with it, so the last one never is. It is returned if
        the one before it was the best so far: then the loss was still falling.
        """
        return self.vector if self.best is None or self.result_round == self.round else self.best

    @property
    def result_round(self) -> int:
        """Number of rounds that led to the result."""
        falling = self.best is None or self.best_round == self.round - 1
        return self.round if falling else self.best_round
