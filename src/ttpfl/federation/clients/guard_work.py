"""Learning a guard: a client's work. It studies lessons, and is then examined without its labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ttpfl.core.direction import Objective
from ttpfl.core.gain import Coefficients
from ttpfl.core.inputs import client_tensors
from ttpfl.core.lessons import Notebook, Studied, studied
from ttpfl.core.rates import Rates
from ttpfl.core.slopes import class_count
from ttpfl.core.twin import Twin
from ttpfl.core.watch import Caution, looks_good
from ttpfl.errors import BatchError
from ttpfl.federation.clients.rate_work import batches_of, validation_data
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.guard_vector import EXAMINE, FOLDS, Exam, GuardVector, Taught
from ttpfl.federation.common.jobs import Job
from ttpfl.federation.common.rate_vector import unpacked
from ttpfl.federation.common.state import Report
from ttpfl.federation.settings import LearnSettings


@dataclass(frozen=True)
class GuardWork:
    """A client's work on its validation data."""

    twins: Sequence[Twin]
    """The model to adapt; if there are several, client i adapts number i modulo their count."""
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
        return {"samples": notebook.samples}

    def _notebook(self, client: int, rates: Rates) -> Notebook:
        data = validation_data(self.pool, client, self.settings)
        with batches_of(client, data, self.settings) as batches:
            batches = list(batches)
        if not batches:
            raise BatchError("the client has no data: leave it out")
        twin = self.twins[client % len(self.twins)]
        classes = class_count(twin, batches[0]) is not None
        return studied(twin, rates, batches, client_tensors(data), self.objective, classes)

    def _taught(self, notebook: Notebook, coefficients: Coefficients) -> Tensor:
        names = [spec.name for spec in self.initial.modules]
        largest = [part.get(name, 0.0) for part in (notebook.norms, notebook.jumps) for name in names]
        extremes = torch.tensor([*largest, notebook.spread, notebook.largest_batch])
        taught = Taught(extremes, notebook.gain_sums(), notebook.right, notebook.usual())
        return self.layout.taught(taught)

    def _examined(self, notebook: Notebook, coefficients: Coefficients) -> Tensor:
        exams = [_exam(one, coefficients, notebook.largest_batch) for one in notebook.lessons]
        return self.layout.examined(exams, float(notebook.right.gram[0] @ coefficients.right))


def _exam(lesson: Studied, coefficients: Coefficients, batch_size: int) -> Exam:
    """What the guard would have done in a lesson."""
    caution, guarded, gained = Caution(batch_size), 0, 0.0
    rows = zip(lesson.figures, lesson.samples, lesson.plain_right, lesson.adapted_right, strict=True)
    for figures, samples, plain_right, adapted_right in rows:
        good = figures is not None and looks_good(figures, coefficients)  # overflow does not look good
        guarded += adapted_right if caution.allows(good, samples) else plain_right
        gained += 0.0 if figures is None else samples * coefficients.gained(figures)
    rights = (sum(lesson.plain_right), sum(lesson.adapted_right), guarded)
    return Exam(sum(lesson.samples), *rights, caution.alarms, gained)
