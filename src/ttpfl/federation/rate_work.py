"""Learning rates: a client's work, and what the server makes of the answers.

No engine is imported here: whatever carries the messages calls the same functions.
"""

from dataclasses import asdict, dataclass
from typing import cast

from torch import Tensor

from ttpfl.direction import DirectionCache, Objective
from ttpfl.errors import BatchError
from ttpfl.federation.jobs import Answer, Job
from ttpfl.federation.rate_average import combined
from ttpfl.federation.roster import Part, Roster
from ttpfl.federation.settings import LearnSettings
from ttpfl.federation.state import Record, Report, RunState
from ttpfl.federation.tally import Tallies, Tally
from ttpfl.inputs import client_batches
from ttpfl.learning import Loss, refine, same_order
from ttpfl.randomness import seeded
from ttpfl.rates import Mode, Rates
from ttpfl.twin import Twin


@dataclass(frozen=True)
class RatesWork:
    """A client's work in a worker: refine the rates on its validation data."""

    twin: Twin
    begin: Rates
    roster: Roster
    settings: LearnSettings
    cache: DirectionCache
    objective: Objective
    loss: Loss

    def __call__(self, job: Job, message: Tensor, answer: Tensor) -> Report:
        """Epochs over the client's batches, always in the same order."""
        settings, tally = self.settings, Tally()
        seed = (settings.seed, job.client)  # the same in every round: batches stay what they are
        rates = self.begin.with_values(message.clone(), mode=cast(Mode, settings.mode))
        data = self.roster.data(job.client, "validation", seed)
        for _ in range(settings.epochs):
            with seeded(*seed, client=data), same_order(data, settings.seed):
                rates = refine(
                    self.twin,
                    rates,
                    client_batches(data, settings.batch_size),
                    settings.lr,
                    cast(Mode, settings.mode),
                    self.cache,
                    self.objective,
                    self.loss,
                    observe=tally.add,
                )
        if not tally.samples:
            raise BatchError("the client has no data: leave it out")
        answer.copy_(rates.values)
        return {"validation": asdict(tally)}


class RatesServer:
    """Takes the clients' rates together."""

    part: Part = "validation"

    def __init__(self, begin: Rates, settings: LearnSettings) -> None:
        self._begin, self._settings = begin, settings

    def begin(self, state: RunState) -> None:
        """A new round."""
        self._rates: list[Rates] = []
        self._tallies = Tallies()

    def start(self, state: RunState, client: int) -> Tensor | None:
        """Nothing: clients keep nothing."""
        return None

    def add(self, answer: Answer) -> None:
        """One more client's rates: few numbers, so all are kept until the round's end."""
        self._rates.append(self._begin.with_values(answer.vector.clone()))
        self._tallies.add(answer.report)

    def finish(self) -> Tensor:
        """Their mean, or what was chosen instead."""
        return combined(self._rates, self._settings.average, self._settings.trim).values

    def summary(self) -> Record:
        """Loss and accuracy after adaptation, with the rates as they were when each batch came."""
        return self._tallies.summary()
