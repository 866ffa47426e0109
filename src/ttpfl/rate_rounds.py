"""Learning rates over source clients in one process: the rounds around the steps of `learning`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import nn

from ttpfl._version import __version__
from ttpfl.direction import DirectionCache, Objective, entropy
from ttpfl.divergence import check_loss
from ttpfl.errors import BatchError, RatesError
from ttpfl.inputs import Client, client_batches
from ttpfl.learning import (
    Loss,
    adapted_tally,
    cross_entropy,
    draw_cohort,
    noted,
    recent_clients,
    refine,
    same_order,
)
from ttpfl.network import weights_hash
from ttpfl.outputs import Readout
from ttpfl.rates import Mode, Rates, average_rates
from ttpfl.tally import Tally
from ttpfl.twin import Twin
from ttpfl.verdict import Candidate, Kept, keep, returnable, verdict, warn_of

OWN_CACHE_BYTES = 2**30


def learn_rates(
    model: nn.Module,
    clients: Sequence[Client] | Mapping[str, Client],
    rounds: int = 200,
    cohort: int | None = None,
    lr: float = 0.1,
    batch_size: int = 20,
    local_epochs: int = 1,
    mode: Mode = "batch",
    rates: Rates | None = None,
    seed: int = 0,
    cache: DirectionCache | None = None,
    *,
    check: bool = True,
    progress: Callable[[dict[str, Any]], object] | None = None,
    logits: Readout | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
) -> Rates:
    """Learn rates for `model` over source clients: in each round a cohort refines, the server averages.

    Args:
        model: the global model; it is not changed.
        clients: a sequence, or a mapping of names, of map-style datasets, `(x, y)` tensor pairs, or
            DataLoaders (whose own batches hold). Batches keep their order in every round.
        rounds: number of rounds.
        cohort: clients per round, drawn without repetition; all if None.
        lr: step size of the refinement.
        batch_size: samples per batch; use the size expected at test time.
        local_epochs: turns over its data that a client takes in a round.
        mode: see `refine_rates`.
        rates: where to start; zeros if None. Also chooses granularity and `only`.
        seed: of the cohorts.
        cache: keeps directions between rounds; if None, a new one of 1 GiB
            (`DirectionCache(0)` keeps nothing).
        check: compare the last round's rates with no adaptation on the clients of the last four rounds. If
            they are worse there (the loss is larger, or the accuracy smaller by two standard errors), warn
            with a `RatesWarning` and return the best of some earlier rates on the same clients. These are the
            rates to start with, and one round of each span of rounds (1, 2 to 3, 4 to 7, and so on): the one
            that lowered its own cohort's loss most. If False, the last round's are returned, as in the paper.
            What was found is in `learned["checked"]`.
        progress: called after every round with its figures: `round`, `clients`, and over the cohort's batches
            `plain_loss` and `plain_accuracy` without adaptation, `validation_loss` and `validation_accuracy`
            after it, with the rates as they were when each batch came.
        logits: from the model's output to logits.
        objective: from logits to the unsupervised loss.
        loss: from logits and labels to the supervised loss.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in "abc"}
    >>> history = []
    >>> rates = learn_rates(model, clients, rounds=2, cohort=2, batch_size=4, progress=history.append)
    >>> rates.learned["clients"], rates.learned["checked"]["round"]
    (3, 2)

    The history is what there is to plot, such as with
    `plt.plot([record["validation_loss"] for record in history])`:

    >>> [record["round"] for record in history], sorted(history[0])[2:]
    ([0, 1], ['plain_loss', 'round', 'validation_accuracy', 'validation_loss'])
    """
    named = dict(clients) if isinstance(clients, Mapping) else dict(enumerate(clients))
    cohort = len(named) if cohort is None else cohort
    _check_counts(named, rounds=rounds, cohort=cohort, local_epochs=local_epochs)
    begin = Rates.zeros(model) if rates is None else rates
    begin.checked().check_fits(model)
    cache = DirectionCache(OWN_CACHE_BYTES) if cache is None else cache
    sites = _Sites(
        Twin(model, begin.modules, readout=logits), named, batch_size, mode, cache, objective, loss, seed
    )
    rates, kept = begin, dict[int, Kept]()
    for number in range(rounds):
        names = draw_cohort(list(named), cohort, seed, number)
        turns, record = sites.round(number, names, rates, lr, local_epochs)
        keep(kept, record["validation_loss"] - record["plain_loss"], Candidate(number, rates.values))
        rates = average_rates(turns)
        if progress is not None:
            progress(record)
    learned: dict[str, Any] = {
        "rounds": int(rounds),
        "clients": len(named),
        "cohort": int(cohort),
        "lr": float(lr),
        "batch_size": int(batch_size),
        "local_epochs": int(local_epochs),
        "seed": int(seed),
        "library": __version__,
    }
    if check:
        last, others = Candidate(rounds, rates.values), returnable(begin.values, kept)
        names = recent_clients(list(named), cohort, seed, rounds)
        found = verdict(last, others, lambda values: sites.judged(names, begin.with_values(values)))
        warn_of(found)
        rates = rates.with_values(found.chosen.values)
        learned |= {"rounds": int(found.chosen.rounds), "checked": found.recorded(len(names))}
    return rates.with_values(rates.values, mode=mode, learned=learned, weights_hash=weights_hash(model))


@dataclass(frozen=True)
class _Sites:
    """The clients' data, and how rates are refined and judged on it."""

    twin: Twin
    clients: Mapping[Any, Client]
    batch_size: int
    mode: Mode
    cache: DirectionCache
    objective: Objective
    loss: Loss
    seed: int
    _plain: dict[Any, Tally] = field(default_factory=dict)
    """Without adaptation, by client: it is the same in every round."""

    def round(
        self, number: int, names: Sequence[Any], rates: Rates, lr: float, epochs: int
    ) -> tuple[list[Rates], dict[str, Any]]:
        """What each client makes of the rates, and the round in figures."""
        turns, plain, after = [], Tally(), Tally()
        for name in names:
            with noted(f"client {name!r}, round {number}"):
                turn, tally = self._turn(name, rates, lr, epochs)
                before = self._judge(name, rates.with_values(torch.zeros_like(rates.values)))
                check_loss(before, tally, lr)
            turns.append(turn)
            plain.join(**before.sums())
            after.join(**tally.sums())
        figures = plain.figures("plain") | after.figures("validation")
        return turns, {"round": number, "clients": len(names), **figures}

    def judged(self, names: Sequence[Any], rates: Rates) -> Tally:
        """Loss and accuracy with these rates, over some clients."""
        total = Tally()
        for name in names:
            with noted(f"client {name!r}"):
                total.join(**self._judge(name, rates).sums())
        return total

    def _turn(self, name: Any, rates: Rates, lr: float, epochs: int) -> tuple[Rates, Tally]:
        tally = Tally()
        for _ in range(epochs):
            with self._batches(name) as batches:
                rates = refine(
                    self.twin, rates, batches, lr, self.mode, self.cache, self.objective, self.loss, tally.add
                )
        return rates, tally

    def _judge(self, name: Any, rates: Rates) -> Tally:
        if name in self._plain and not rates.values.any():
            return self._plain[name]
        with self._batches(name) as batches:
            tally = adapted_tally(self.twin, rates, batches, self.mode, self.cache, self.objective, self.loss)
        if not rates.values.any():
            self._plain[name] = tally
        return tally

    @contextmanager
    def _batches(self, name: Any) -> Iterator[Iterable[Any]]:
        client = self.clients[name]
        with same_order(client, self.seed):
            yield _at_least_one(client_batches(client, self.batch_size))


def _at_least_one(batches: Iterable[Any]) -> Iterator[Any]:
    empty = True
    for batch in batches:
        empty = False
        yield batch
    if empty:
        raise BatchError("the client has no data: leave it out")


def _check_counts(named: Mapping[Any, Client], **counts: int) -> None:
    if not named:
        raise BatchError("no clients: pass at least one")
    for name, count in counts.items():
        if not isinstance(count, Integral) or count < 1:
            raise RatesError(f"{name} is {count!r}: it must be a whole number, at least 1")
    if counts["cohort"] > len(named):
        raise RatesError(f"cohort is {counts['cohort']}, but there are only {len(named)} clients")
