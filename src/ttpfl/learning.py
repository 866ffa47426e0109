"""Learning the rates on source clients: simulate adaptation, look with labels how it went, refine.

The pure steps are here; engines that spread clients over processes or machines call the same ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ttpfl._version import __version__
from ttpfl.direction import (
    Change,
    Direction,
    DirectionCache,
    Objective,
    absorb,
    batch_key,
    entropy,
    move,
    one_number,
    probe,
)
from ttpfl.errors import BatchError, ModelError, RatesError, TtpflError
from ttpfl.inputs import Client, Inputs, all_finite, checked, client_batches, released, split_batch
from ttpfl.network import weights_hash
from ttpfl.randomness import generators_of
from ttpfl.rates import Mode, Rates, average_rates, one_of
from ttpfl.statistics import at_least_float32
from ttpfl.twin import Readout, Twin, isolated

Loss = Callable[[Tensor, Tensor], Tensor]
Observe = Callable[[Tensor, Tensor, Tensor], None]

OWN_CACHE_BYTES = 2**30


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy, the default supervised loss, for labels that are class indices."""
    if labels.ndim != 1 or labels.dtype.is_floating_point or len(labels) != len(logits):
        raise BatchError(
            f"labels of {labels.dtype} with shape {tuple(labels.shape)} are not one class index for "
            f"each of {len(logits)} samples: for other targets pass loss="
        )
    if len(labels) and not (labels.min() >= 0 and labels.max() < logits.shape[1]):
        bad = ((labels < 0) | (labels >= logits.shape[1])).nonzero()
        raise BatchError(
            f"label {int(labels[bad[0]])} of sample {int(bad[0])} is not a class in 0..{logits.shape[1] - 1}"
        )
    return F.cross_entropy(at_least_float32(logits), labels.long())


def refine_rates(
    model: nn.Module,
    rates: Rates,
    batches: Iterable[Any],
    lr: float = 0.1,
    mode: Mode = "batch",
    cache: DirectionCache | None = None,
    *,
    logits: Readout | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
) -> Rates:
    """One client's turn: refine the rates on its labelled batches, in order, and return new ones.

    Args:
        model: the global model; it is not changed.
        rates: where to start; they are not changed.
        batches: `(x, y)` pairs, `((x1, x2), y)`, `({...}, y)`, or dicts with "labels".
        lr: step size of the refinement.
        mode: "batch" refines with each batch's own direction (the paper); "online" with the mean of
            this client's directions so far, as an online personalizer will use them.
        cache: keeps directions of batches that come again.
        logits: from the model's output to logits, for outputs that are not a tensor.
        objective: from logits to the unsupervised loss.
        loss: from logits and labels to the supervised loss.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> batch = (torch.randn(8, 3), torch.randint(2, (8,)))
    >>> rates = refine_rates(model, Rates.zeros(model), [batch], lr=0.1)
    >>> bool(rates.values.any())
    True
    """
    rates.checked().check_fits(model)
    twin = Twin(model, rates.modules, readout=logits)
    return refine(twin, rates, batches, lr, mode, cache, objective, loss)


def refine(
    twin: Twin,
    rates: Rates,
    batches: Iterable[Any],
    lr: float,
    mode: Mode,
    cache: DirectionCache | None = None,
    objective: Objective = entropy,
    loss: Loss = cross_entropy,
    observe: Observe | None = None,
) -> Rates:
    """`refine_rates` on a twin that is already there, for engines that keep one.

    `observe` is told the logits after adaptation, the labels and the loss of every batch.
    """
    one_of("mode", mode, get_args(Mode))
    if not lr > 0:
        raise RatesError(f"lr is {lr}: it must be positive")
    values = rates.values.detach().to(twin.device)
    group_of = {n: i for i, members in enumerate(rates.members.values()) for n in members}
    scale = lr / rates.sizes.clamp(min=1).to(values).sqrt()
    mean: Direction = {}
    with isolated():
        for index, batch in enumerate(batches):
            try:
                inputs, labels = split_batch(batch)
                inputs = checked(inputs)
                direction = _direction(twin, inputs, objective, cache)
                if mode == "online":
                    direction = _running_mean(mean, direction, index + 1)
                labels = released(labels)
                slope = _slope(twin, group_of, values, direction, inputs, labels, loss, observe)
                values = values - scale * slope
                if not all_finite(values):
                    rates.with_values(values)  # an error that says which
            except TtpflError as error:
                error.add_note(f"in batch {index} of this client's turn")
                raise
    return rates.with_values(values.to(rates.values.device, copy=True), mode=mode)


def _direction(twin: Twin, inputs: Inputs, objective: Objective, cache: DirectionCache | None) -> Direction:
    def compute() -> Direction:
        return probe(twin, inputs, objective).direction

    return compute() if cache is None else cache.get(batch_key(twin, inputs, objective), compute)


def _running_mean(mean: Direction, direction: Direction, count: int) -> Direction:
    if count == 1:  # a copy: the direction may belong to the cache
        mean.update({name: Change(c.value.clone(), c.taps, c.shape) for name, c in direction.items()})
    else:
        absorb(mean, direction, 1 / count)
    return mean


def _slope(
    twin: Twin,
    group_of: Mapping[str, int],
    values: Tensor,
    direction: Direction,
    inputs: Inputs,
    labels: Tensor,
    loss: Loss,
    observe: Observe | None,
) -> Tensor:
    """Derivative of the supervised loss after adaptation, with respect to each rate.

    It is <h, gradient in w>, summed over the modules that share the rate: no second derivative,
    since h does not depend on the rates.
    """
    rates = values.unbind()
    rate_of = {name: rates[group_of[name]] for name in direction}
    moved = move(twin, direction, rate_of, relaid=twin.takes_channels_last(inputs))
    leaves = moved.leaves()
    logits = twin.fast(inputs, moved)
    result = one_number("loss", loss(logits, labels))
    if observe is not None:
        observe(logits.detach(), labels, result.detach())
    if not result.requires_grad:  # nothing that moves has any influence
        return torch.zeros_like(values)
    gradients = torch.autograd.grad(result, list(leaves.values()), allow_unused=True)
    parts = {
        name: (direction[name].value * gradient).sum()
        for name, gradient in zip(leaves, gradients, strict=True)
        if gradient is not None
    }
    if not parts:
        raise ModelError(
            "no gradient of the loss reaches anything that has a rate: hand over a model whose last layers "
            "are differentiable (not quantised, not detached)"
        )
    groups = torch.tensor([group_of[name] for name in parts], device=values.device)
    return torch.zeros_like(values).index_add_(0, groups, torch.stack(list(parts.values())).to(values))


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
        logits: from the model's output to logits.
        objective: from logits to the unsupervised loss.
        loss: from logits and labels to the supervised loss.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    >>> clients = {name: (torch.randn(8, 3), torch.randint(2, (8,))) for name in "abc"}
    >>> learn_rates(model, clients, rounds=2, cohort=2, lr=0.1, batch_size=4).learned["clients"]
    3
    """
    named = dict(clients) if isinstance(clients, Mapping) else dict(enumerate(clients))
    cohort = len(named) if cohort is None else cohort
    _check_counts(named, rounds=rounds, cohort=cohort, local_epochs=local_epochs)
    rates = Rates.zeros(model) if rates is None else rates
    rates.checked().check_fits(model)
    cache = DirectionCache(OWN_CACHE_BYTES) if cache is None else cache
    twin = Twin(model, rates.modules, readout=logits)
    for number in range(rounds):
        turns = []
        for name in draw_cohort(list(named), cohort, seed, number):
            turn = rates
            for _ in range(local_epochs):
                try:
                    with same_order(named[name], seed):
                        batches = _at_least_one(client_batches(named[name], batch_size))
                        turn = refine(twin, turn, batches, lr, mode, cache, objective, loss)
                except TtpflError as error:
                    error.add_note(f"client {name!r}, round {number}")
                    raise
            turns.append(turn)
        rates = average_rates(turns)
    learned = {
        "rounds": int(rounds),
        "clients": len(named),
        "cohort": int(cohort),
        "lr": float(lr),
        "batch_size": int(batch_size),
        "local_epochs": int(local_epochs),
        "seed": int(seed),
        "library": __version__,
    }
    return rates.with_values(rates.values, mode=mode, learned=learned, weights_hash=weights_hash(model))


def draw_cohort(names: Sequence[Any], size: int, seed: int, number: int) -> list[Any]:
    """The clients of one round: a draw that depends on the seed and the round's number alone.

    >>> draw_cohort(["a", "b", "c", "d"], size=2, seed=0, number=7)
    ['a', 'c']
    """
    chosen = np.random.default_rng([seed, number]).choice(len(names), size, replace=False)
    return [names[index] for index in sorted(chosen)]


@contextmanager
def same_order(client: Client, seed: int) -> Iterator[None]:
    """A DataLoader draws random numbers: always the same ones, and the generators stay as they were."""
    draws = isinstance(client, DataLoader)
    generators = [torch.default_generator, *generators_of(client)] if draws else []
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


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
