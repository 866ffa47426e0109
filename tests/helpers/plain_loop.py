"""Rate learning as one obvious loop, without engines: what every way of running it must give, to the bit."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ttpfl.core.inputs import client_batches
from ttpfl.core.learning import adapted_tally, draw_cohort, recent_clients, refine
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.rates import Mode, Rates
from ttpfl.core.rates_check import Candidate, Kept, keep, returnable, verdict
from ttpfl.core.twin import Twin
from ttpfl.federation.server.rate_average import average_rates
from ttpfl.util.randomness import same_order


class Plain(NamedTuple):
    values: Tensor
    rounds: int
    checked: dict[str, Any] | None


def learn_plainly(
    model: nn.Module,
    clients: Sequence[Any] | Mapping[str, Any],
    rounds: int,
    cohort: int | None = None,
    lr: float = 0.1,
    batch_size: int = 20,
    local_epochs: int = 1,
    mode: Mode = "batch",
    rates: Rates | None = None,
    seed: int = 0,
    check: bool = True,
) -> Plain:
    data = list(clients.values()) if isinstance(clients, Mapping) else list(clients)
    size = len(data) if cohort is None else cohort
    begin = Rates.zeros(model) if rates is None else rates
    twin, rates, kept = Twin(model, begin.modules), begin, dict[int, Kept]()

    def batches(place: int) -> list[Any]:
        with same_order(data[place], seed):
            return list(client_batches(data[place], batch_size))

    def judged(places: Sequence[int], values: Tensor) -> MetricSums:
        total = MetricSums()
        for place in places:
            total.join(**adapted_tally(twin, begin.with_values(values), batches(place), mode).sums())
        return total

    for number in range(rounds):
        turns, after = [], MetricSums()
        drawn = draw_cohort(range(len(data)), size, seed, number)
        for place in drawn:
            turn = rates
            for _ in range(local_epochs):
                turn = refine(twin, turn, batches(place), lr, mode, observe=after.add)
            turns.append(turn)
        without = judged(drawn, torch.zeros_like(begin.values))
        keep(kept, after.mean_loss - without.mean_loss, Candidate(number, rates.values))
        rates = average_rates(turns)
    last = Candidate(rounds, rates.values)
    if not check:
        return Plain(last.values, rounds, None)
    recent = recent_clients(range(len(data)), size, seed, rounds)
    found = verdict(last, returnable(begin.values, kept), partial(judged, recent))
    return Plain(found.chosen.values, found.chosen.rounds, found.recorded(len(recent)))
