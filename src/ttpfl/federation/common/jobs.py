"""Jobs, engines and servers: an engine runs the clients of a round, a server aggregates their results.

An engine knows nothing about models, rates or averages. It passes the same vector to every job and returns
the results in the order of the jobs. So sums over results have the same bits for any number of workers and
any order of completion.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ttpfl.federation.common.client_pool import Part
from ttpfl.federation.common.state import Record, Report, RunState


@dataclass(frozen=True)
class Job:
    """One client's part in one round."""

    client: int
    name: str
    round: int
    start: Tensor | None = field(default=None, compare=False)
    """Values for this client alone, written to the start of `out` before the work."""
    validate: bool = False
    """Only evaluate the vector on the client's validation data; the result is the report."""
    guard: bool = False
    """Whether this is one of the two rounds in which a guard is learned."""


class Work(Protocol):
    """A client's computation. It is created once in each worker, where it may keep a model."""

    def __call__(self, job: Job, message: Tensor, out: Tensor, /) -> Report:
        """Write the client's vector to `out` and return a report of plain numbers and text."""


class ClientResult(NamedTuple):
    """Result of a job. `vector` is valid until the next result is requested."""

    job: Job
    vector: Tensor
    report: Report
    failure: str | None
    """Why the job failed, or None."""


class Engine(Protocol):
    """Runs jobs."""

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """Yield the results of all jobs, in their order."""

    def close(self) -> None:
        """Stop everything that was started."""


class Server(Protocol):
    """Computes the next vector from the results of a round."""

    part: Part
    """The part of their data that clients work on."""
    same_cohort: bool = False
    """Whether every round has the same clients, because their results are compared from round to round."""

    def begin(self, state: RunState) -> None:
        """Start a new round."""

    def start(self, state: RunState, client: int) -> Tensor | None:
        """Values to send to this client alone; none by default."""
        return None

    def add(self, result: ClientResult) -> None:
        """Add a valid result."""

    def enough(self) -> bool:
        """Whether the results are enough for a next vector; by default, a single one is."""
        return True

    def finish(self) -> Tensor:
        """The next vector."""

    def retry(self, state: RunState) -> Tensor:
        """The next vector after an abandoned round, which is not in the history yet; by default the same."""
        return state.vector

    def summary(self) -> Record:
        """Metrics of the round."""


MakeWork = Callable[[], Work]
MakeEngine = Callable[[int, torch.dtype], Engine]
"""Creates an engine for vectors of this length and type."""
