"""Learning rates: a client's work. Independent of any engine: whatever carries the messages calls it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor

from ttpfl.core.direction import Objective
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.divergence import check_loss
from ttpfl.core.inputs import Client, client_batches
from ttpfl.core.learning import Loss, adapted_tally, refine
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates import Mode, Rates
from ttpfl.core.slopes import mean_slope, plain_prediction
from ttpfl.core.twin import Twin
from ttpfl.errors import BatchError
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.jobs import Job
from ttpfl.federation.common.rate_vector import unpacked
from ttpfl.federation.common.state import Report
from ttpfl.federation.privacy.mechanism import clipped, gaussian, new_key
from ttpfl.federation.settings import LearnSettings
from ttpfl.util.randomness import same_order, seeded


@dataclass(frozen=True)
class RatesWork:
    """A client's work on its validation data: refine the rates, or report the slope of its loss in each."""

    twins: Sequence[Twin]
    """The model to adapt; if there are several, client i adapts number i modulo their count."""
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
        """Work through the client's batches, in the same order in every epoch and round."""
        settings, metrics, mode = self.settings, MetricSums(), cast(Mode, self.settings.mode)
        rates = unpacked(self.initial, message)
        data = validation_data(self.pool, job.client, settings)
        if job.validate:
            return {"adapted": self._adapted(job.client, data, rates).sums()}
        if settings.searches:
            return self._answered(job.client, data, rates, out)
        for _ in range(settings.local_epochs):
            with batches_of(job.client, data, settings) as batches:
                options = (cast(float, settings.lr), mode, self.cache, self.objective, self.loss)
                rates = refine(self._twin(job.client), rates, batches, *options, observe=metrics.add)
        if not metrics.samples:
            raise BatchError("the client has no data: leave it out")
        out.copy_(self._released(job, message, rates.values))
        # Losses and counts have no noise. With local privacy, they do not leave the client.
        if settings.privacy == "local":
            return {}
        return {"validation": metrics.sums(), **self._compared(job.client, data, metrics)}

    def _twin(self, client: int) -> Twin:
        return self.twins[client % len(self.twins)]

    def _answered(self, client: int, data: Client, rates: Rates, out: Tensor) -> Report:
        """Write the slope of the client's loss and its mean prediction to `out`, and report the loss.

        As long as the server does not know all clients' predictions, there is no slope.
        """
        twin, known = self._twin(client), any(rates.prior) or not rates.prior
        with batches_of(client, data, self.settings) as batches:
            if known:
                mode = cast(Mode, self.settings.mode)
                found = mean_slope(twin, rates, batches, mode, self.cache, self.objective, self.loss)
            else:
                found = plain_prediction(twin, rates, batches, self.loss)
        if not found.sums.samples:
            raise BatchError("the client has no data: leave it out")
        out.copy_(torch.cat([found.slope, found.prediction]))
        return {"validation": found.sums.sums()}

    def _compared(self, client: int, data: Client, metrics: MetricSums) -> Report:
        if not self.compare:
            return {}
        if client not in self._plain:
            zeros = self.initial.with_values(torch.zeros_like(self.initial.values))
            self._plain[client] = self._adapted(client, data, zeros)
        check_loss(self._plain[client], metrics, cast(float, self.settings.lr))
        return {"plain": self._plain[client].sums()}

    def _adapted(self, client: int, data: Client, rates: Rates) -> MetricSums:
        mode = cast(Mode, self.settings.mode)
        with batches_of(client, data, self.settings) as batches:
            return adapted_tally(
                self._twin(client), rates, batches, mode, self.cache, self.objective, self.loss
            )

    def _released(self, job: Job, before: Tensor, after: Tensor) -> Tensor:
        if self.settings.privacy != "local":
            return after
        change = clipped(after - before, self.settings.clip)
        # Never reuse noise: two results with the same noise would reveal their difference.
        key = new_key() if self.noise_key is None else self.noise_key
        noise = gaussian(key, job.round, job.client, count=len(change))
        return (before.double() + change + self.settings.noise * self.settings.clip * noise).to(after.dtype)


def validation_data(pool: ClientPool, client: int, settings: LearnSettings) -> Client:
    """A client's data for learning rates."""
    return pool.data(client, "validation", (settings.seed, client))


@contextmanager
def batches_of(client: int, data: Client, settings: LearnSettings) -> Iterator[Iterable[Any]]:
    """The same batches every time, even if they are random."""
    with seeded(settings.seed, client), same_order(data, settings.seed):
        yield client_batches(data, settings.batch_size)
