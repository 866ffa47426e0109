"""Choosing hyper-parameters on source clients, never on target clients."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import fsum, prod
from typing import Any

from torch import Tensor, nn

from ttpfl.core.inputs import client_batches
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods.base import Method, SourceInfo, get, make
from ttpfl.util.parallel import Progress, cores, in_parallel
from ttpfl.util.randomness import seeded
from ttpfl.util.threads import single_thread

Grid = Mapping[str, Sequence[Any]]
SourceInfoOf = Callable[[Method], SourceInfo]


Config = dict[str, Any]
Row = dict[str, Any]

MOST = 36
"""Combinations of a grid that are all tried; of a larger one, hyper-parameters are chosen one by one."""


@dataclass(frozen=True)
class Tuned:
    """What tuning found."""

    best: Method
    """The method with the hyper-parameters of the highest mean accuracy; of equal ones that which is nearest
    to the defaults, then the first."""
    table: list[Row]
    """One row per combination that was tried: its hyper-parameters, the mean "accuracy", that of each of
    the "clients", and the first "error" ("" if there was none; a client where it fails counts as 0)."""
    at_edge: list[str]
    """Hyper-parameters whose best value is the least or the greatest of its grid, and better than the next:
    try beyond it."""


def tune(
    name: str,
    grid: Grid | None,
    model: nn.Module,
    source_info: SourceInfo | SourceInfoOf,
    streams: Sequence[tuple[Any, Tensor]],
    *,
    batch_size: int = 20,
    passes: int = 5,
    workers: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Run a method with the values of a grid over source clients, and pick the best.

    All combinations are tried, if there are not too many (`MOST`). Else hyper-parameters are chosen in their
    order, one by one: the ones before as chosen, those after at their defaults. The result is the same for
    any number of workers.

    Args:
        name: of the method.
        grid: the values of each hyper-parameter to try, the others are left as they are by default; the
            method's own grid if None.
        model: the global model.
        source_info: what the method knows from the source side; or a function that finds it out for given
            hyper-parameters, since what source clients tell may depend on them.
        streams: labelled validation data of source clients, a pair (x, y) for each.
        batch_size: of the streams.
        passes: how often each stream comes. Validation data is a small part of a client's, by default a
            fifth; a method that learns from batch to batch shall see as many batches as at a target client.
        workers: processes; one per core if None.
        seed: for methods that draw random numbers.
        progress: is told how many runs are done, and how many there are.

    >>> import torch
    >>> model, x = nn.Linear(2, 2), torch.eye(2)
    >>> _ = model.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> streams = [(x, torch.tensor([0, 1]))]
    >>> found = tune("em", {"iterations": (1, 2)}, model, SourceInfo(), streams, workers=1)
    >>> found.best, found.at_edge
    (EM(iterations=2, source_prior=False), [])
    >>> found.table[1]
    {'iterations': 2, 'accuracy': 1.0, 'clients': [1.0], 'error': ''}
    """
    grid = get(name).grid() if grid is None else grid
    for key, values in grid.items():
        if not len(values):
            raise MethodError(f"the grid has no value for {key!r}: give it at least one, or leave it out")
    streams = [(x, y) for x, y in streams if len(y)]
    if not streams:
        raise MethodError("there are no source clients with data to tune on: give at least one")
    defaults = {key: getattr(make(name), key, None) for key in grid}
    parts = [grid] if prod(map(len, grid.values())) <= MOST else [{key: grid[key]} for key in grid]
    known = _remembered(source_info)
    best, table, at_edge = defaults, [], []
    for part in parts:
        configs = [best | dict(zip(part, values, strict=True)) for values in product(*part.values())]
        judge = _Judge(model, streams, batch_size, passes, seed)
        methods = [make(name, **config) for config in configs]
        found = judge(methods, [known(method) for method in methods], workers, progress)
        rows = [config | row for config, row in zip(configs, found, strict=True)]
        table += rows
        chosen = _best(rows, defaults)
        best = {key: chosen[key] for key in grid}
        at_edge += [key for key in part if _at_edge(key, part[key], chosen, rows)]
    if all(row["error"] for row in table):
        raise MethodError(f"{name} fails with every combination of the grid: {table[0]['error']}")
    return Tuned(make(name, **best), table, at_edge)


def _remembered(source_info: SourceInfo | SourceInfoOf) -> SourceInfoOf:
    """Source clients are asked once for all candidates that ask them the same."""
    if not callable(source_info):
        return lambda method: source_info
    answers: dict[str, SourceInfo] = {}

    def known(method: Method) -> SourceInfo:
        question = repr(method.summary_key())
        if question not in answers:
            answers[question] = source_info(method)
        return answers[question]

    return known


@dataclass(frozen=True)
class _Judge:
    """How methods do on the streams of source clients."""

    model: nn.Module
    streams: Sequence[tuple[Any, Tensor]]
    batch_size: int
    passes: int
    seed: int

    def __call__(
        self,
        methods: Sequence[Method],
        known: Sequence[SourceInfo],
        workers: int | None,
        progress: Progress | None,
    ) -> list[Row]:
        count = len(self.streams)

        def run(number: int) -> tuple[float, str]:
            method, client = divmod(number, count)
            with single_thread(), seeded(self.seed, client):
                return self._accuracy(methods[method], known[method], self.streams[client])

        jobs = len(methods) * count
        runs = in_parallel(run, jobs, min(cores() if workers is None else workers, jobs), progress)
        return [_row(runs[index * count : (index + 1) * count]) for index in range(len(methods))]

    def _accuracy(
        self, method: Method, source_info: SourceInfo, stream: tuple[Any, Tensor]
    ) -> tuple[float, str]:
        adapter, right = method.adapter(self.model, source_info), 0
        passes = self.passes if method.stateful else 1  # it would answer the same again
        try:
            for _ in range(passes):
                for x, y in client_batches(stream, self.batch_size):
                    right += int((adapter(x).argmax(1) == y).sum())
        except BatchError as error:  # a step size that is too large shall not end the search
            return 0.0, str(error)
        return right / len(stream[1]) / passes, ""


def _row(runs: Sequence[tuple[float, str]]) -> Row:
    clients = [accuracy for accuracy, _ in runs]
    error = next((error for _, error in runs if error), "")
    return {"accuracy": fsum(clients) / len(clients), "clients": clients, "error": error}


def _best(rows: Sequence[Row], defaults: Config) -> Row:
    def merit(index: int) -> tuple[float, int, int]:
        same = sum(rows[index][key] == value for key, value in defaults.items())
        return rows[index]["accuracy"], same, -index

    return rows[max(range(len(rows)), key=merit)]


def _at_edge(key: str, values: Sequence[Any], best: Row, rows: Sequence[Row]) -> bool:
    """Whether it is the first or the last of numbers in order, and better than the one beside it."""
    numbers = [math.inf if value is None else value for value in values]  # None: without a limit
    if any(isinstance(value, bool | str) for value in numbers) or len(values) < 2:
        return False
    if numbers not in (sorted(numbers), sorted(numbers, reverse=True)):
        return False
    beside = {0: 1, len(values) - 1: len(values) - 2}.get(list(values).index(best[key]))
    if beside is None:
        return False
    figures = ("accuracy", "clients", "error", key)
    others = {name: value for name, value in best.items() if name not in figures}
    next_to_it = next(row for row in rows if row[key] == values[beside] and others.items() <= row.items())
    return bool(best["accuracy"] > next_to_it["accuracy"])
