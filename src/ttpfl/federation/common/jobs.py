"""What an engine does: the work of a round's clients, wherever it is done, in a fixed order.

An engine knows nothing of models, rates or averages: it hands every job a vector that all clients get,
and returns each client's answer in the order of the jobs. So sums over answers have the same bits
whatever the number of workers and whoever finishes first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ttpfl.federation.common.state import Report


@dataclass(frozen=True)
class Job:
    """One client's part in one round."""

    client: int
    name: str
    round: int
    start: Tensor | None = field(default=None, compare=False)
    """What this client alone gets: the first values of its `answer`, before the work."""
    judge: bool = False
    """Only look how good the vector is on the client's validation data: the report is the answer."""


class Work(Protocol):
    """What is done for a client. It is made once in each worker, and may keep a model there."""

    def __call__(self, job: Job, message: Tensor, answer: Tensor) -> Report:
        """Write the client's vector to `answer`; the report is plain numbers and text."""


class ClientResult(NamedTuple):
    """What came of a job. `vector` is only valid until the next answer is asked for."""

    job: Job
    vector: Tensor
    report: Report
    failure: str | None
    """Why there is no result, or None."""


class Engine(Protocol):
    """Runs jobs."""

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """The answers of all jobs, in their order."""

    def close(self) -> None:
        """End all that was started."""


MakeWork = Callable[[], Work]

MakeEngine = Callable[[int, torch.dtype], Engine]
"""From the vectors' length and type to an engine."""
