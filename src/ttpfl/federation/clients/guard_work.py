"""Learning a guard: a client's work. It studies lessons, and is then examined without its labels."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ttpfl.core.direction import Objective
from ttpfl.core.gain import GAIN, Coefficients, Sums
from ttpfl.core.inputs import client_tensors
from ttpfl.core.lessons import Notebook, studied
from ttpfl.core.rates import Rates
from ttpfl.core.slopes import class_count
from ttpfl.core.twin import Twin
from ttpfl.errors import BatchError
from ttpfl.federation.clients.rate_work import batches_of, validation_data
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.guard_vector import EXAMINE, FOLDS, Exam, GuardVector
from ttpfl.federation.common.jobs import Job
from ttpfl.federation.common.rate_vector import unpacked
from ttpfl.federation.common.state import Report
from ttpfl.federation.settings import LearnSettings


@dataclass(frozen=True)
class GuardWork:
    """A client's work on its validation data."""

    twin: Twin
    initial: Rates
    pool: ClientPool
    settings: LearnSettings
    objective: Objective
    layout: GuardVector
    _notebooks: dict[int, Notebook] = field(default_factory=dict)
    """Kept between the two rounds, by client."""

    def __call__(self, job: Job, message: Tensor, out: Tensor, /) -> Report:
        """Write the client's vector to `out`, and report its number of samples."""
        rates, coefficients = self.layout.read_task(message, job.client % FOLDS)
        if job.client not in self._notebooks:
            self._notebooks[job.client] = self._notebook(job.client, unpacked(self.initial, rates))
        notebook = self._notebooks[job.client]
        write = self._examined if job.round == EXAMINE else self._taught
        out.copy_(write(notebook, coefficients))
        return {"samples": notebook.lessons[0].past.samples}

    def _notebook(self, client: int, rates: Rates) -> Notebook:
        data = validation_data(self.pool, client, self.settings)
        with batches_of(client, data, self.settings) as batches:
            batches = list(batches)
        if not batches:
            raise BatchError("the client has no data: leave it out")
        classes = class_count(self.twin, batches[0]) is not None
        return studied(self.twin, rates, batches, client_tensors(data), self.objective, classes)

    def _taught(self, notebook: Notebook, coefficients: Coefficients) -> Tensor:
        names = [spec.name for spec in self.initial.modules]
        largest = [part.get(name, 0.0) for part in (notebook.norms, notebook.jumps) for name in names]
        extremes = torch.tensor([*largest, notebook.spread, notebook.largest_batch])
        gain = Sums.zeros(GAIN)
        for lesson in notebook.lessons:
            gain += lesson.sums()
        return self.layout.taught(extremes, gain, notebook.right)

    def _examined(self, notebook: Notebook, coefficients: Coefficients) -> Tensor:
        exams = [
            Exam(one.past.samples, one.plain_right, one.adapted_right, *one.gained(coefficients))
            for one in notebook.lessons
        ]
        return self.layout.examined(exams, float(notebook.right.gram[0] @ coefficients.right))
