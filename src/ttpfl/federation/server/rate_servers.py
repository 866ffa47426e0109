"""The server's part of rate learning: average the clients' rates (SGD), or search with their slopes."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter

import torch
from torch import Tensor

from ttpfl.core.metric_sums import MetricSumsByName
from ttpfl.core.rates import Rates
from ttpfl.federation.common.client_pool import Part
from ttpfl.federation.common.jobs import ClientResult, Server
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.privacy.composition import Spending
from ttpfl.federation.privacy.mechanism import clipped, noise_of_sum
from ttpfl.federation.server.answers import UNKNOWN, Answers
from ttpfl.federation.server.credibility import assumed_counts
from ttpfl.federation.server.rate_average import combined, min_results
from ttpfl.federation.server.rate_search import (
    REASONS,
    RUNNING,
    RateSearch,
    advanced,
    limits,
    restored,
    shortened,
    started,
)
from ttpfl.federation.server.robust import Average
from ttpfl.federation.settings import LearnSettings

log = logging.getLogger("ttpfl")


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


class SearchServer(Server):
    """Searches for rates with the losses and slopes of the clients; the state is in `RunState.memory`."""

    part: Part = "validation"
    same_cohort = True

    def __init__(self, given: Rates, settings: LearnSettings, cohort: int) -> None:
        self._given, self._cohort, self._count = given.values, cohort, len(given.values)
        self._limit = limits(given)
        self._average, self._check = Average(settings.average, settings.trim), settings.check

    def begin(self, state: RunState) -> None:
        """Start a round."""
        self._state, self._results, self._finished = state, dict[int, tuple[Tensor, Record]](), False

    def add(self, result: ClientResult) -> None:
        """Keep a client's vector and its loss until the round ends."""
        self._results[result.job.client] = (
            result.vector.to(torch.float64, copy=True),
            result.report["validation"],
        )

    def enough(self) -> bool:
        """Whether clients can be compared, and krum can choose."""
        return len(self._results) >= min(max(2, self._average.fewest), self._cohort)

    def finish(self) -> Tensor:
        """The next rates to try, with the label prior; the run ends if the search does."""
        state, answers, average, self._finished = self._state, self._answers(), self._average, True
        sent = state.vector[self._count :]
        gathers = len(sent) > 0 and not bool(sent.any())
        if "outage" in state.memory:  # it is over: go on with the rates that were not answered
            state.memory = {name: value for name, value in state.memory.items() if name != "outage"}
            return self._following(restored(state.memory), state)
        before = restored(state.memory) if "searches" in state.memory else None
        if before is not None:
            search = advanced(before, answers, average, state.round, self._check)
        else:
            search = started(answers, average, self._given, self._limit)
        if gathers:  # answers without slopes, for rates of zero
            search = replace(search, trial=torch.zeros_like(search.trial), reason=RUNNING)
        priors = self._priors(before, search, sent, answers.samples) if len(sent) else {}
        state.memory = search.tensors() | priors | ({} if gathers else {"searches": torch.tensor(True)})
        state.stopped = bool(search.reason)
        return self._following(search, state)

    def retry(self, state: RunState) -> Tensor:
        """The same rates; after two abandoned rounds in a row, rates that are less far away.

        One such round may be an accident, but clients may also refuse large rates. Three end the run, since
        they look like an outage. If it is resumed, it first repeats rates that clients have answered before:
        once they answer again, the outage is over, and further abandoned rounds shorten the step again.
        """
        in_a_row = 1 + len(list(takewhile(itemgetter("abandoned"), reversed(state.history))))
        if "searches" not in state.memory or in_a_row == 1:
            return state.vector
        search = restored(state.memory)
        if in_a_row == 2:
            search = shortened(search, self._average)
            state.memory = state.memory | search.tensors()
            return self._following(search, state)
        state.memory = state.memory | {"outage": torch.tensor(True)}
        prior = state.memory.get("best_prior", state.vector[self._count :])
        return torch.cat([search.region.center, prior]).to(state.vector)

    def _following(self, search: RateSearch, state: RunState) -> Tensor:
        """The rates to try next, with the label prior."""
        prior = state.memory.get("prior", state.vector[self._count :])
        return torch.cat([search.trial, prior]).to(state.vector)

    def _priors(
        self, before: RateSearch | None, search: RateSearch, sent: Tensor, samples: Tensor
    ) -> dict[str, Tensor]:
        """Soft counts of the label prior: to send next, and those that the best rates were sent with.

        Adapted predictions depend on the rates, so better rates are followed by the predictions of source
        clients with them. If these do not lower the loss, the next step is tried without that change.
        """
        memory, number = self._state.memory, self._state.round
        if before is not None and search.trial is before.trial and not search.reason:  # asked again
            return {name: memory[name] for name in ("prior", "best_prior", "result_prior")}
        if before is None or search.best_round == number:
            following = self._assumed_counts(samples, sent)
            best = sent if bool(sent.any()) else following
        else:
            following = best = memory["best_prior"]
        kept = memory.get("result_prior", best)
        result = best if search.result.round == number else kept
        return {"prior": following, "best_prior": best, "result_prior": result}

    def _assumed_counts(self, samples: Tensor, sent: Tensor) -> Tensor:
        """From the clients' predictions, in the part of their vectors after the slopes.

        Clients where adaptation overflows send zeros; if too few know better, nothing changes.
        """
        every = [self._results[client][0][self._count :] for client in sorted(self._results)]
        rows = torch.stack(every)
        known = rows.clamp(min=0).sum(1) > 0
        if int(known.sum()) < self._average.fewest:
            return sent
        return assumed_counts(rows[known], samples[known], self._average)

    def summary(self) -> Record:
        """Metrics with the best rates so far and without adaptation, and what became of the round's rates."""
        if not self._state.memory:  # the first round was abandoned
            return {}
        search, average = restored(self._state.memory), self._average
        record: Record = search.result.answers.figures("validation", average)
        record |= search.plain.figures("plain", average)
        if self._finished:  # not abandoned
            record["trial_loss"] = average.of_numbers(self._answers().losses)
            record["accepted"] = search.rounds == 1 or search.best_round == self._state.round
        if search.reason:
            record["stopped"] = REASONS[search.reason]
        return record

    def _answers(self) -> Answers:
        clients = sorted(self._results)
        vectors, sums = zip(*(self._results[client] for client in clients), strict=True)
        right = [UNKNOWN if entry.get("right") is None else entry["right"] for entry in sums]
        return Answers(
            torch.tensor(clients),
            torch.tensor([entry["loss"] / entry["samples"] for entry in sums], dtype=torch.float64),
            torch.stack(vectors)[:, : self._count],
            torch.tensor([entry["samples"] for entry in sums]),
            torch.tensor(right),
        )


def search_of(state: RunState) -> RateSearch:
    """The search in the state of a run that has finished a round."""
    return restored(state.memory)
