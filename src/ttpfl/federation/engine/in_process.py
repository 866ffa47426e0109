"""Engines that run one client after the other in this process, and what happens when a client fails."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ttpfl.errors import noted
from ttpfl.federation.common.jobs import ClientResult, Job, MakeWork, Work
from ttpfl.federation.common.state import Report
from ttpfl.util.threads import single_thread, threads


class Serial:
    """Runs one client after the other. A client that fails is left out of the round.

    >>> def make_work():
    ...     def double(job, message, out):
    ...         out.copy_(2 * message + job.client)
    ...         return {"name": job.name}
    ...     return double
    >>> engine = Serial(make_work, length=2)
    >>> for result in engine.run([Job(7, "north", round=0)], torch.tensor([1.0, 2.0])):
    ...     print(result.vector, result.report)
    tensor([ 9., 11.]) {'name': 'north'}
    """

    def __init__(self, make_work: MakeWork, length: int, dtype: torch.dtype = torch.float32) -> None:
        self._work = make_work()
        self._out = torch.empty(length, dtype=dtype)

    def run(self, jobs: Sequence[Job], message: Tensor) -> Iterator[ClientResult]:
        """Yield the results of all jobs, in their order."""
        for job in jobs:
            report, failure = self._attempt(job, message)
            yield ClientResult(job, self._out, report, failure)

    def close(self) -> None:
        """Do nothing: no process was started."""

    def _attempt(self, job: Job, message: Tensor) -> tuple[Report, str | None]:
        with single_thread():
            return attempt(self._work, job, message, self._out)


class Strict(Serial):
    """Runs one client after the other with the caller's number of threads. The first failure ends the run.

    The error is the client's, with a note that names the client and the round.
    """

    def __init__(self, make_work: MakeWork, length: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(make_work, length, dtype)
        self._threads = torch.get_num_threads()

    def _attempt(self, job: Job, message: Tensor) -> tuple[Report, str | None]:
        with threads(self._threads), noted(f"client {job.name!r}, round {job.round}"):
            return self._work(job, message, self._out), None


def attempt(work: Work, job: Job, message: Tensor, out: Tensor) -> tuple[Report, str | None]:
    """Do the work and return its report, or why it failed; one client's error must not stop the others."""
    if job.start is not None:
        out[: len(job.start)] = job.start
    try:
        return work(job, message, out), None
    except Exception as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return {}, f"{type(error).__name__}: {error}{notes}"
