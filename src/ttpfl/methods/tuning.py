"""Choosing hyper-parameters on source clients, never on target clients."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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

MOST = 80
"""The largest number of combinations to try; hyper-parameters of larger grids are tuned one by one."""


@dataclass(frozen=True)
class Tuned:
    """The result of tuning."""

    best: Method
    """The method with the hyper-parameters of the highest mean accuracy; ties go to the one nearest to the
    defaults, then to the first."""
    table: list[Row]
    """A row for each combination: its hyper-parameters, the mean "accuracy", the accuracies of the "clients",
    and the first "error", or "". A client at which the method fails counts as 0."""
    at_edge: list[str]
    """Hyper-parameters whose best value is the first or last of the grid and beats its neighbour: extend
    the grid."""


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
    """Try a grid of hyper-parameters on source clients and choose the best.

    A grid of up to `MOST` combinations is tried in full. In a larger one, hyper-parameters are tuned one by
    one, with earlier ones as chosen and later ones at their defaults. The number of workers does not matter.

    Args:
        name: The method.
        grid: The values to try; the method's own grid if None.
        model: The global model.
        source_info: Information from the source clients, or a function that computes it for a method, since
            summaries may depend on hyper-parameters.
        streams: Labelled validation data (x, y) of each source client.
        batch_size: The batch size of the streams.
        passes: Repetitions of each stream. Validation data is a small part of a client's data, so repeat it
            for methods that learn from batch to batch.
        workers: The number of processes; one per core if None.
        seed: The random seed, for methods that use random numbers.
        progress: Called with the number of finished runs and of all runs.

    >>> import torch
    >>> model, x = nn.Linear(2, 2), torch.eye(2)
    >>> _ = model.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> streams = [(x, torch.tensor([0, 1]))]
    >>> result = tune("em", {"iterations": (1, 2)}, model, SourceInfo(), streams, workers=1)
    >>> result.best, result.at_edge
    (EM(iterations=2, source_prior=False, pseudo_counts=0.0, temperature=1.0), [])
    >>> result.table[1]
    {'iterations': 2, 'accuracy': 1.0, 'clients': [1.0], 'error': ''}
    """
    grid = get(name).grid() if grid is None else grid
    streams = [(x, y) for x, y in streams if len(y)]
    _check(grid, streams)
    runs = _Runs(model, streams, batch_size, passes, seed, workers, progress)
    tuned = _search(name, grid, _cached(source_info), runs)
    if all(row["error"] for row in tuned.table):
        raise MethodError(f"{name} fails with every combination of the grid: {tuned.table[0]['error']}")
    return tuned


def _check(grid: Grid, streams: Sequence[tuple[Any, Tensor]]) -> None:
    for key, values in grid.items():
        if not len(values):
            raise MethodError(f"the grid has no value for {key!r}: add at least one, or remove the key")
    if not streams:
        raise MethodError("there are no source clients with data to tune on: pass at least one")


def _search(name: str, grid: Grid, source_info: SourceInfoOf, runs: "_Runs") -> Tuned:
    defaults = {key: getattr(make(name), key, None) for key in grid}
    small = math.prod(map(len, grid.values())) <= MOST
    best, table, at_edge = defaults, [], []
    for part in [grid] if small else [{key: grid[key]} for key in grid]:
        configs = [best | dict(zip(part, values, strict=True)) for values in product(*part.values())]
        methods = [make(name, **config) for config in configs]
        scores = runs.scores(methods, [source_info(method) for method in methods])
        rows = [config | score for config, score in zip(configs, scores, strict=True)]
        table += rows
        chosen = _best(rows, defaults)
        best = {key: chosen[key] for key in grid}
        at_edge += [key for key in part if _at_edge(key, part[key], chosen, rows)]
    return Tuned(make(name, **best), table, at_edge)


def _cached(source_info: SourceInfo | SourceInfoOf) -> SourceInfoOf:
    """Gather summaries once for all methods with the same `summary_key`."""
    if not callable(source_info):
        return lambda method: source_info
    cache: dict[str, SourceInfo] = {}

    def cached(method: Method) -> SourceInfo:
        key = repr(method.summary_key())
        if key not in cache:
            cache[key] = source_info(method)
        return cache[key]

    return cached


@dataclass(frozen=True)
class _Runs:
    """Runs of methods on the streams of source clients."""

    model: nn.Module
    streams: Sequence[tuple[Any, Tensor]]
    batch_size: int
    passes: int
    seed: int
    workers: int | None
    progress: Progress | None

    def scores(self, methods: Sequence[Method], source_infos: Sequence[SourceInfo]) -> list[Row]:
        """Accuracies and errors of each method."""
        clients = len(self.streams)

        def run(number: int) -> tuple[float, str]:
            method, client = divmod(number, clients)
            with single_thread(), seeded(self.seed, client):
                return self._accuracy(methods[method], source_infos[method], self.streams[client])

        count = len(methods) * clients
        workers = min(cores() if self.workers is None else self.workers, count)
        results = in_parallel(run, count, workers, self.progress)
        return [_score(results[start : start + clients]) for start in range(0, count, clients)]

    def _accuracy(
        self, method: Method, source_info: SourceInfo, stream: tuple[Any, Tensor]
    ) -> tuple[float, str]:
        adapter, correct = method.adapter(self.model, source_info), 0
        passes = self.passes if method.stateful else 1  # further passes would give the same logits
        try:
            for _ in range(passes):
                for x, y in client_batches(stream, self.batch_size):
                    correct += int((adapter(x).argmax(1) == y).sum())
        except BatchError as error:  # too large a learning rate must not stop the search
            return 0.0, str(error)
        return correct / len(stream[1]) / passes, ""


def _score(results: Sequence[tuple[float, str]]) -> Row:
    accuracies, errors = zip(*results, strict=True)
    mean = math.fsum(accuracies) / len(accuracies)
    return {"accuracy": mean, "clients": list(accuracies), "error": next(filter(None, errors), "")}


def _best(rows: Sequence[Row], defaults: Config) -> Row:
    def merit(row: Row) -> tuple[float, int]:
        return row["accuracy"], sum(row[key] == value for key, value in defaults.items())

    return max(rows, key=merit)  # the first of equal ones


def _at_edge(key: str, values: Sequence[Any], best: Row, rows: Sequence[Row]) -> bool:
    """Whether the best value is the first or last of a sorted grid and better than its neighbour."""
    numbers = [math.inf if value is None else value for value in values]  # None means no limit
    if any(isinstance(value, bool | str) for value in numbers) or len(values) < 2:
        return False
    if numbers not in (sorted(numbers), sorted(numbers, reverse=True)):
        return False
    neighbour = {0: 1, len(values) - 1: len(values) - 2}.get(list(values).index(best[key]))
    if neighbour is None:
        return False
    metrics = ("accuracy", "clients", "error", key)
    rest = {name: value for name, value in best.items() if name not in metrics}
    next_row = next(row for row in rows if row[key] == values[neighbour] and rest.items() <= row.items())
    return bool(best["accuracy"] > next_row["accuracy"])
