"""`ttpfl.learn_rates`: `ttpfl.federation.learn` in one process and without files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ttpfl.core.direction import Objective, entropy
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.inputs import Client
from ttpfl.core.learning import Loss, cross_entropy
from ttpfl.core.outputs import Readout
from ttpfl.core.rates import Mode, Rates
from ttpfl.errors import BatchError, FederationError, RatesError
from ttpfl.federation.checkpoints.callbacks import Callback
from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.common.state import Record, RunState
from ttpfl.federation.rate_run import RateRun
from ttpfl.federation.settings import LearnSettings

CACHE_BYTES = 2**30
_SETTINGS = ("cohort", "batch_size", "local_epochs", "seed")
_RECORDED = ("rounds", "clients", "library", "checked")


def learn_rates(
    model: nn.Module,
    clients: Sequence[Client] | Mapping[str, Client],
    rounds: int | None = None,
    cohort: int | None = None,
    lr: float | None = None,
    batch_size: int = 20,
    local_epochs: int = 1,
    mode: Mode = "batch",
    rates: Rates | None = None,
    seed: int = 0,
    cache: DirectionCache | None = None,
    *,
    optimizer: str | None = None,
    prior: bool = False,
    budget: float | None = None,
    guard: bool = False,
    check: bool = True,
    progress: Callable[[dict[str, Any]], object] | None = None,
    logits: Readout | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
    unseen: Sequence[nn.Module] = (),
) -> Rates:
    """Learn rates for `model` over source clients. The first client that fails ends it with its error.

    Args:
        model: The global model; it is not changed.
        clients: A sequence or a mapping of datasets, `(x, y)` tensor pairs or DataLoaders.
        rounds: Maximum number of rounds; 25 if None, 200 with SGD.
        cohort: Clients per round; all if None. SGD draws new ones in every round.
        lr: Learning rate of SGD; setting it selects `optimizer="sgd"`.
        batch_size: Batch size; use the one expected at test time. DataLoaders keep their own.
        local_epochs: Local epochs per round of SGD.
        mode: See `refine_rates`.
        rates: Rates to start from; zeros if None. They also set the granularity and `only`.
        seed: Random seed. The batches of a client are the same in every round.
        cache: Keeps directions between rounds; a new one of 1 GiB if None.
        optimizer: "trust-region", or "sgd": the paper's algorithm. If None, SGD if `lr` is set.
        prior: Learn a rate for the label prior, too, if there are classes. Not with SGD.
        budget: Most forward passes that personalising a batch may cost: it chooses the modules.
        guard: Learn a guard against harm, too, in two more rounds.
        check: Only return rates that source clients show to help; with SGD, warn if the last do not.
        progress: Called after every round with its loss and accuracy, before and after adaptation.
        logits: Maps the model's output to logits.
        objective: Maps logits to the unsupervised loss.
        loss: Maps logits and labels to the supervised loss.
        unseen: Models in place of `model` that did not see a client's data: see `federation.train_unseen`.

    >>> import torch
    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in "abc"}
    >>> learn_rates(nn.Linear(3, 2), clients, batch_size=4).names
    ('weight', 'bias')
    """
    clients = dict(clients) if isinstance(clients, Mapping) else list(clients)
    counts = {"rounds": rounds, "cohort": cohort, "batch_size": batch_size, "local_epochs": local_epochs}
    how = {"optimizer": optimizer, "lr": lr, "mode": mode, "seed": seed, "check": check}
    settings = _settings(clients, **counts, **how, prior=prior, budget=budget, guard=guard)
    run = RateRun(model, clients, settings, rates, objective, loss, logits, unseen, cache=cache, strict=True)
    return _recorded(run(callbacks=[] if progress is None else [_Progress(progress)]).rates, settings)


def _recorded(rates: Rates, settings: LearnSettings) -> Rates:
    """The rates with a record of their settings, without those that only `federation.learn` has."""
    learned = {name: rates.learned[name] for name in _RECORDED if name in rates.learned}
    learned |= {name: int(getattr(settings, name)) for name in _SETTINGS} | {"optimizer": settings.optimizer}
    learned |= {} if settings.budget is None else {"budget": float(settings.budget)}
    learned |= {} if settings.lr is None else {"lr": float(settings.lr)}
    return rates.with_values(rates.values, learned=learned)


def _settings(clients: Sequence[Client] | Mapping[str, Client], **values: Any) -> LearnSettings:
    """Settings with these values; errors are RatesErrors, since callers need not know of a federation."""
    if not clients:
        raise BatchError("no clients: pass at least one")
    try:
        settings = LearnSettings(workers=0, direction_cache=CACHE_BYTES, **values)
        return replace(settings, cohort=ClientPool(clients).cohort(settings.cohort))
    except FederationError as error:
        raise RatesError(str(error)) from None


class _Progress(Callback):
    """Passes the metrics of a round to a function, without traffic and failures."""

    def __init__(self, progress: Callable[[Record], object]) -> None:
        self._progress = progress

    def on_round(self, state: RunState, record: Record) -> None:
        """Pass on the metrics."""
        names = [n for n in record if n in ("round", "clients") or n.startswith(("plain_", "validation_"))]
        self._progress({name: record[name] for name in names})
