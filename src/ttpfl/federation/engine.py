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

from ttpfl.federation.state import Report
from ttpfl.threads import single_thread


@dataclass(frozen=True)
class Job:
    """One client's part in one round."""

    client: int
    name: str
    round: int
    start: Tensor | None = field(default=None, compare=False)
    """What this client alone gets: the first values of its `answer`, before the work."""


class Work(Protocol):
    """What is done for a client. It is made once in each worker, and may keep a model there."""

    def __call__(self, job: Job, message: Tensor, answer: Tensor) -> Report:
        """Write the client's vector to `answer`; the report is plain numbers and text."""


class Answer(NamedTuple):
    """What came of a job. `vector` is only valid until the next answer is asked for."""

    job: Job
    vector: Tensor
    report: Report
    failure: str | None
    """Why there is no result, or None."""


class Engine(Protocol):
    """Runs jobs."""

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[Answer]:
        """The answers of all jobs, in their order."""

    def close(self) -> None:
        """End all that was started."""


MakeWork = Callable[[], Work]


class Serial:
    """One client after the other, in this process.

    >>> def make_work():
    ...     def double(job, message, answer):
    ...         answer.copy_(2 * message + job.client)
    ...         return {"seen": job.name}
    ...     return double
    >>> engine = Serial(make_work, length=2)
    >>> for answer in engine.run([Job(7, "north", round=0)], torch.tensor([1.0, 2.0])):
    ...     print(answer.vector, answer.report)
    tensor([ 9., 11.]) {'seen': 'north'}
    """

    def __init__(self, make_work: MakeWork, length: int, dtype: torch.dtype = torch.float32) -> None:
        self._work = make_work()
        self._answer = torch.empty(length, dtype=dtype)

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[Answer]:
        """The answers of all jobs, in their order."""
        for job in jobs:
            with single_thread():
                report, failure = attempt(self._work, job, message, self._answer)
            yield Answer(job, self._answer, report, failure)

    def close(self) -> None:
        """Nothing was started."""


def attempt(work: Work, job: Job, message: Tensor, answer: Tensor) -> tuple[Report, str | None]:
    """Do the work; a failure of whatever kind is this client's, and no reason for others to stop."""
    if job.start is not None:
        answer[: len(job.start)] = job.start
    try:
        return work(job, message, answer), None
    except Exception as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return {}, f"{type(error).__name__}: {error}{notes}"
