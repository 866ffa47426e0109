"""Learning rates: a client's work, and the server's aggregation of the results.

Independent of any engine: whatever carries the messages calls the same functions.
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
from ttpfl.federation.common.jobs import ClientResult, Job, Server
from ttpfl.federation.common.state import Record, Report, RunState
from ttpfl.federation.privacy.composition import Spending
from ttpfl.federation.privacy.mechanism import clipped, gaussian, new_key, noise_of_sum
from ttpfl.federation.server.rate_average import combined, min_results
from ttpfl.federation.settings import LearnSettings
from ttpfl.util.randomness import same_order, seeded

log = logging.getLogger("ttpfl")


@dataclass(frozen=True)
class RatesWork:
    """A client's work: refine the rates on its validation data."""

    twin: Twin
    initial: Rates
    pool: ClientPool
    settings: LearnSettings
    cache: DirectionCache
    objective: Objective
    loss: Loss
    noise_key: bytes | None = None
    """Key of the noise of privacy="local", for repeatable runs; a new secret each time if None."""
    compare: bool = False
    """Whether to report loss and accuracy without adaptation, too."""
    _plain: dict[int, MetricSums] = field(default_factory=dict)
    """Metrics without adaptation by client; they are the same in every round."""

    def __call__(self, job: Job, message: Tensor, out: Tensor, /) -> Report:
        """Refine the rates over the client's batches, in the same order in every epoch."""
        settings, metrics, mode = self.settings, MetricSums(), cast(Mode, self.settings.mode)
        rates = self.initial.with_values(message.clone(), mode=mode)
        data = self.pool.data(job.client, "validation", (settings.seed, job.client))
        if job.validate:
            return {"adapted": self._adapted(job.client, data, rates).sums()}
        for _ in range(settings.local_epochs):
            with self._batches(job.client, data) as batches:
                options = (settings.lr, mode, self.cache, self.objective, self.loss)
                rates = refine(self.twin, rates, batches, *options, observe=metrics.add)
        if not metrics.samples:
            raise BatchError("the client has no data: leave it out")
        out.copy_(self._released(job, message, rates.values))
        # Losses and counts have no noise. With local privacy, they do not leave the client.
        if settings.privacy == "local":
            return {}
        return {"validation": metrics.sums(), **self._compared(job.client, data, metrics)}

    def _compared(self, client: int, data: Client, metrics: MetricSums) -> Report:
        if not self.compare:
            return {}
        if client not in self._plain:
            zeros = self.initial.with_values(torch.zeros_like(self.initial.values))
            self._plain[client] = self._adapted(client, data, zeros)
        check_loss(self._plain[client], metrics, self.settings.lr)
        return {"plain": self._plain[client].sums()}

    def _adapted(self, client: int, data: Client, rates: Rates) -> MetricSums:
        mode = cast(Mode, self.settings.mode)
        with self._batches(client, data) as batches:
            return adapted_tally(self.twin, rates, batches, mode, self.cache, self.objective, self.loss)

    @contextmanager
    def _batches(self, client: int, data: Client) -> Iterator[Iterable[Any]]:
        """The same batches every time, even if they are random."""
        with seeded(self.settings.seed, client), same_order(data, self.settings.seed):
            yield client_batches(data, self.settings.batch_size)

    def _released(self, job: Job, before: Tensor, after: Tensor) -> Tensor:
        if self.settings.privacy != "local":
            return after
        change = clipped(after - before, self.settings.clip)
        # Never reuse noise: two results with the same noise would reveal their difference.
        key = new_key() if self.noise_key is None else self.noise_key
        noise = gaussian(key, job.round, job.client, count=len(change))
        return (before.double() + change + self.settings.noise * self.settings.clip * noise).to(after.dtype)


class RatesServer(Server):
    """Aggregates the clients' rates."""

    part: Part = "validation"

    def __init__(
        self, initial: Rates, settings: LearnSettings, spending: Spending, noise_key: Callable[[], bytes]
    ) -> None:
        self._initial, self._settings, self._spending = initial, settings, spending
        self._noise_key = noise_key

    def begin(self, state: RunState) -> None:
        """Start a round."""
        self._state = state
        self._key = self._noise_key()  # not earlier: only now is the run's folder locked
        self._rates: list[Rates] = []
        self._metrics = MetricSumsByName()

    def add(self, result: ClientResult) -> None:
        """Add a client's rates; they are few numbers, so all are kept until the round ends."""
        self._rates.append(self._initial.with_values(result.vector.clone()))
        self._metrics.add(result.report)

    def enough(self) -> bool:
        """Whether krum can choose; the other averages take any number of results."""
        settings = self._settings
        return settings.average != "krum" or len(self._rates) >= min_results("krum", settings.trim)

    def finish(self) -> Tensor:
        """The average of the rates, with noise if privacy is central."""
        settings, before, results = self._settings, self._state.vector, len(self._rates)
        if results < min_results(settings.average, settings.trim):
            message = "round %d: trim=%g leaves out none of %d results, so this is the plain mean"
            log.warning(message, self._state.round, settings.trim, results)
        if settings.privacy != "central":
            return combined(self._rates, settings.average, settings.trim).values
        changes = [clipped(rates.values - before, settings.clip) for rates in self._rates]
        columns = torch.stack(changes, dim=1).tolist()
        total = torch.tensor([math.fsum(column) for column in columns], dtype=torch.float64)
        scale = settings.noise * settings.clip
        total += noise_of_sum(self._key, self._state.round, total, results, scale)
        return (before.double() + total / results).to(before.dtype)

    def summary(self) -> Record:
        """Loss and accuracy after adaptation, with the rates at the time of each batch.

        With privacy, the epsilon of all rounds so far instead, including the cost of the initial rates:
        metrics have no noise.
        """
        if self._settings.privacy == "none":
            return self._metrics.summary()
        return self._spending.record(self._state.round + 1)
