"""Learning rates: a client's work, and what the server makes of the answers.

No engine is imported here: whatever carries the messages calls the same functions.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from ttpfl.core.direction import DirectionCache, Objective
from ttpfl.core.divergence import check_loss
from ttpfl.core.inputs import Client, client_batches
from ttpfl.core.learning import Loss, adapted_tally, refine
from ttpfl.core.metric_sums import MetricSums, MetricSumsByName
from ttpfl.core.rates import Mode, Rates
from ttpfl.core.twin import Twin
from ttpfl.errors import BatchError
from ttpfl.federation.common.client_pool import ClientPool, Part
from ttpfl.federation.common.jobs import ClientResult, Job
from ttpfl.federation.common.state import Record, Report, RunState
from ttpfl.federation.privacy.composition import Spending
from ttpfl.federation.privacy.mechanism import clipped, gaussian, new_key, noise_of_sum
from ttpfl.federation.server.rate_average import combined, least_answers
from ttpfl.federation.settings import LearnSettings
from ttpfl.util.randomness import same_order, seeded

log = logging.getLogger("ttpfl")


@dataclass(frozen=True)
class RatesWork:
    """A client's work in a worker: refine the rates on its validation data."""

    twin: Twin
    begin: Rates
    client_pool: ClientPool
    settings: LearnSettings
    cache: DirectionCache
    objective: Objective
    loss: Loss
    noise_key: bytes | None = None
    """For runs that must be repeatable: where the noise of privacy="local" comes from; secret, if None."""
    compare: bool = False
    """Report also the loss and accuracy without adaptation."""
    _plain: dict[int, MetricSums] = field(default_factory=dict)
    """Those, by client: they are the same in every round."""

    def __call__(self, job: Job, message: Tensor, answer: Tensor) -> Report:
        """Epochs over the client's batches, always in the same order."""
        settings, tally, mode = self.settings, MetricSums(), cast(Mode, self.settings.mode)
        rates = self.begin.with_values(message.clone(), mode=mode)
        data = self.client_pool.data(job.client, "validation", (settings.seed, job.client))
        if job.judge:
            return {"adapted": self._judged(job.client, data, rates).sums()}
        for _ in range(settings.local_epochs):
            with self._batches(job.client, data) as batches:
                how = (settings.lr, mode, self.cache, self.objective, self.loss)
                rates = refine(self.twin, rates, batches, *how, observe=tally.add)
        if not tally.samples:
            raise BatchError("the client has no data: leave it out")
        answer.copy_(self._released(job, message, rates.values))
        # Losses and counts have no noise, so they stay where they are when the client does not trust anybody.
        if settings.privacy == "local":
            return {}
        return {"validation": tally.sums(), **self._compared(job.client, data, tally)}

    def _compared(self, client: int, data: Client, tally: MetricSums) -> Report:
        if not self.compare:
            return {}
        if client not in self._plain:
            nothing = self.begin.with_values(torch.zeros_like(self.begin.values))
            self._plain[client] = self._judged(client, data, nothing)
        check_loss(self._plain[client], tally, self.settings.lr)
        return {"plain": self._plain[client].sums()}

    def _judged(self, client: int, data: Client, rates: Rates) -> MetricSums:
        mode = cast(Mode, self.settings.mode)
        with self._batches(client, data) as batches:
            return adapted_tally(self.twin, rates, batches, mode, self.cache, self.objective, self.loss)

    @contextmanager
    def _batches(self, client: int, data: Client) -> Iterator[Iterable[Any]]:
        """Always the same ones, also where they are drawn at random."""
        with seeded(self.settings.seed, client), same_order(data, self.settings.seed):
            yield client_batches(data, self.settings.batch_size)

    def _released(self, job: Job, before: Tensor, after: Tensor) -> Tensor:
        if self.settings.privacy != "local":
            return after
        change = clipped(after - before, self.settings.clip)
        # Never the same noise twice: two answers with the same noise would show their difference.
        key = new_key() if self.noise_key is None else self.noise_key
        noise = gaussian(key, job.round, job.client, count=len(change))
        return (before.double() + change + self.settings.noise * self.settings.clip * noise).to(after.dtype)


class RatesServer:
    """Takes the clients' rates together."""

    part: Part = "validation"

    def __init__(
        self,
        begin: Rates,
        settings: LearnSettings,
        spending: Spending,
        noise_key: Callable[[], bytes] = bytes,
    ) -> None:
        self._begin, self._settings, self._spending = begin, settings, spending
        self._noise_key = noise_key

    def begin(self, state: RunState) -> None:
        """A new round."""
        self._state = state
        self._key = self._noise_key()  # not earlier: now the run's folder is held
        self._rates: list[Rates] = []
        self._tallies = MetricSumsByName()

    def start(self, state: RunState, client: int) -> Tensor | None:
        """Nothing: clients keep nothing."""
        return None

    def add(self, answer: ClientResult) -> None:
        """One more client's rates: few numbers, so all are kept until the round's end."""
        self._rates.append(self._begin.with_values(answer.vector.clone()))
        self._tallies.add(answer.report)

    def enough(self) -> bool:
        """Whether krum can choose among them; the others take any number."""
        settings = self._settings
        return settings.average != "krum" or len(self._rates) >= least_answers("krum", settings.trim)

    def finish(self) -> Tensor:
        """Their mean, or what was chosen instead."""
        settings, before = self._settings, self._state.vector
        if len(self._rates) < least_answers(settings.average, settings.trim):
            log.warning(
                "round %d: of %d answers trim=%g leaves out nobody, so this is the plain mean",
                self._state.round,
                len(self._rates),
                settings.trim,
            )
        if settings.privacy != "central":
            return combined(self._rates, settings.average, settings.trim).values
        changes = [clipped(rates.values - before, settings.clip) for rates in self._rates]
        columns = torch.stack(changes, dim=1).tolist()
        total = torch.tensor([math.fsum(column) for column in columns], dtype=torch.float64)
        scale = settings.noise * settings.clip
        total += noise_of_sum(self._key, self._state.round, total, len(changes), scale)
        return (before.double() + total / len(changes)).to(before.dtype)

    def summary(self) -> Record:
        """Loss and accuracy after adaptation, with the rates as they were when each batch came.

        With privacy there are none, since they have no noise; there is the epsilon of all rounds so far,
        and of what the rates that the run began with had cost.
        """
        if self._settings.privacy == "none":
            return self._tallies.summary()
        return self._spending.record(self._state.round + 1)
