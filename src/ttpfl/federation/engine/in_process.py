"""Engines in this process: one client after the other. What a client's failure means is decided here."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ttpfl.errors import noted
from ttpfl.federation.common.jobs import ClientResult, Job, MakeWork, Work
from ttpfl.federation.common.state import Report
from ttpfl.util.threads import single_thread, threads


class Serial:
    """One client after the other. A client that fails is left out of the round.

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

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """The answers of all jobs, in their order."""
        for job in jobs:
            with single_thread():
                report, failure = attempt(self._work, job, message, self._answer)
            yield ClientResult(job, self._answer, report, failure)

    def close(self) -> None:
        """Nothing was started."""


class Strict(Serial):
    """One client after the other, with as many threads as the caller has. The first failure ends the run.

    The error is the client's own, with a note that names the client and the round.
    """

    def __init__(self, make_work: MakeWork, length: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(make_work, length, dtype)
        self._threads = torch.get_num_threads()

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """The answers of all jobs, in their order."""
        for job in jobs:
            with threads(self._threads), noted(f"client {job.name!r}, round {job.round}"):
                report = self._work(job, message, self._answer)
            yield ClientResult(job, self._answer, report, None)


def attempt(work: Work, job: Job, message: Tensor, answer: Tensor) -> tuple[Report, str | None]:
    """Do the work; a failure of whatever kind is this client's, and no reason for others to stop."""
    if job.start is not None:
        answer[: len(job.start)] = job.start
    try:
        return work(job, message, answer), None
    except Exception as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return {}, f"{type(error).__name__}: {error}{notes}"
