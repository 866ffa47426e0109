"""Choosing hyper-parameters on source clients, never on target clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import fsum
from typing import Any

from torch import Tensor, nn

from ttpfl.data.parallel import Progress, cores, in_parallel
from ttpfl.errors import BatchError, MethodError
from ttpfl.inputs import client_batches
from ttpfl.methods.base import Knowledge, Method, get, make
from ttpfl.randomness import seeded
from ttpfl.threads import single_thread

Grid = Mapping[str, Sequence[Any]]
KnowledgeOf = Callable[[Method], Knowledge]


@dataclass(frozen=True)
class Tuned:
    """What tuning found."""

    best: Method
    """The method with the hyper-parameters of the highest mean accuracy; of equal ones the first."""
    table: list[dict[str, Any]]
    """One row per combination: its hyper-parameters, the mean "accuracy", that of each of the "clients",
    and the first "error" ("" if there was none; a client on which the method fails counts as 0)."""
    at_edge: list[str]
    """Hyper-parameters whose best value is the least or the greatest of its grid: try beyond it."""


def tune(
    name: str,
    grid: Grid | None,
    model: nn.Module,
    knowledge: Knowledge | KnowledgeOf,
    streams: Sequence[tuple[Any, Tensor]],
    *,
    batch_size: int = 20,
    workers: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Tuned:
    """Run a method with every combination of a grid over source clients, and pick the best.

    The result is the same for any number of workers.

    Args:
        name: of the method.
        grid: the values of each hyper-parameter to try, the others are left as they are by default; the
            method's own grid if None.
        model: the global model.
        knowledge: what the method knows from the source side; or a function that finds it out for given
            hyper-parameters, since what source clients tell may depend on them.
        streams: labelled validation data of source clients, a pair (x, y) for each.
        batch_size: of the streams.
        workers: processes; one per core if None.
        seed: for methods that draw random numbers.
        progress: is told how many runs are done, and how many there are.

    >>> import torch
    >>> model, x = nn.Linear(2, 2), torch.eye(2)
    >>> _ = model.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> found = tune("em", {"iterations": (1, 2)}, model, Knowledge(), [(x, torch.tensor([0, 1]))], workers=1)
    >>> found.best, found.at_edge
    (EM(iterations=1, source_prior=False), ['iterations'])
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
    configs = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    methods = [make(name, **config) for config in configs]
    known = [knowledge(method) if callable(knowledge) else knowledge for method in methods]

    def run(number: int) -> tuple[float, str]:
        config, client = divmod(number, len(streams))
        with single_thread(), seeded(seed, client):
            return _accuracy(methods[config], model, known[config], streams[client], batch_size)

    count = len(methods) * len(streams)
    runs = in_parallel(run, count, min(cores() if workers is None else workers, count), progress)
    table = []
    for index, config in enumerate(configs):
        of_clients = runs[index * len(streams) : (index + 1) * len(streams)]
        clients = [accuracy for accuracy, _ in of_clients]
        error = next((error for _, error in of_clients if error), "")
        table.append(config | {"accuracy": fsum(clients) / len(clients), "clients": clients, "error": error})
    if all(row["error"] for row in table):
        raise MethodError(f"{name} fails with every combination of the grid: {table[0]['error']}")
    best = max(range(len(table)), key=lambda index: (table[index]["accuracy"], -index))
    return Tuned(methods[best], table, [key for key in grid if _at_edge(configs[best][key], grid[key])])


def _accuracy(
    method: Method, model: nn.Module, knowledge: Knowledge, stream: tuple[Any, Tensor], batch_size: int
) -> tuple[float, str]:
    personal, right = method.personal(model, knowledge), 0
    try:
        for x, y in client_batches(stream, batch_size):
            right += int((personal(x).argmax(1) == y).sum())
    except BatchError as error:  # a step size that is too large shall not end the search
        return 0.0, str(error)
    return right / len(stream[1]), ""


def _at_edge(value: Any, values: Sequence[Any]) -> bool:
    """Whether it is the first or last of numbers in order; of two or more, else there is no choice."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    if not numbers or len(values) < 2 or list(values) not in (sorted(values), sorted(values, reverse=True)):
        return False
    return bool(value in (values[0], values[-1]))
