"""All methods over all target clients: the same model, the same streams, the same seeds."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any

from torch import Tensor, nn

from ttpfl.core.direction import check_finite
from ttpfl.core.inputs import client_batches
from ttpfl.core.network import model_hash, weights_hash
from ttpfl.data.clients import SourceClient
from ttpfl.errors import BatchError, DataError
from ttpfl.evaluation.cost import plain_seconds
from ttpfl.evaluation.evaluator import Evaluator, plain
from ttpfl.evaluation.memory import extra_bytes
from ttpfl.evaluation.rows import Journal, Row
from ttpfl.methods.base import Method, SourceInfo, Summary, add
from ttpfl.results.comparison import Comparison
from ttpfl.results.runs import bare_entry, bare_run, columns, stream_config
from ttpfl.util.parallel import cores, in_order
from ttpfl.util.threads import single_thread


def gather(
    method: Method,
    model: nn.Module,
    source: Sequence[SourceClient],
    batch_size: int,
    workers: int | None = None,
) -> Summary:
    """The sum of what source clients tell about their validation data; empty if the method needs nothing."""
    if not method.needs_source:
        return {}

    def summary(number: int) -> Summary:
        with single_thread():
            return method.summary(model, client_batches(source[number].validation(), batch_size))

    return add(in_order(summary, len(source), cores() if workers is None else workers))


def compare(
    model: nn.Module,
    evaluator: Evaluator,
    methods: Sequence[tuple[Method, SourceInfo]],
    *,
    run_dir: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Comparison:
    """Run every method over every target client.

    Args:
        model: the global model; it is not changed.
        evaluator: who holds the labels.
        methods: each with what it knows from the source side, and each once: its name tells rows apart.
        run_dir: keeps each row as it comes (`rows.jsonl`), and goes on after an interruption.
        workers: processes; one per core if None.
        progress: told how many rows are there, and how many there will be.

    >>> from ttpfl import data, methods, models
    >>> population, answers, _ = data.federate("digits", shift="none", source_clients=8, target_clients=2)
    >>> evaluator = Evaluator(population.target[:1], answers, batch_size=200)
    >>> model = models.shallow_cnn(10, image_size=28).eval()
    >>> found = compare(model, evaluator, [(methods.make("none"), SourceInfo())], workers=0)
    >>> found.methods, len(found.of("none", "accuracy"))
    (['none'], 1)
    """
    workers = cores() if workers is None else workers
    if model.training:
        raise DataError(f"{type(model).__name__} is in training mode: put it into evaluation mode before")
    _check_once([method.name for method, _ in methods])
    clients, people, setting = evaluator.clients(), evaluator.described(), _setting(model, evaluator)
    jobs = [(number, client) for number in range(len(methods)) for client in clients]
    heads = [[method.name, asdict(method), _hash_of(known)] for method, known in methods]
    keys = [json.dumps([*heads[n], evaluator.target[client].id], sort_keys=True) for n, client in jobs]
    journal = Journal(run_dir, setting)
    missing = [index for index, key in enumerate(keys) if key not in journal.rows]

    def work(position: int) -> Row:
        number, client = jobs[missing[position]]
        with single_thread():
            return _row(model, evaluator, client, *methods[number])

    for position, row in enumerate(in_order(work, len(missing), workers)):
        journal.add(keys[missing[position]], row)
        if progress is not None:
            progress(len(jobs) - len(missing) + position + 1, len(jobs))
    info = evaluator.target[0].info
    run = bare_run(info.name, setting["images"], info.classes, people)
    run |= {"seed": evaluator.seed, "config": stream_config(setting), "setting": setting}
    rows = [journal.rows[key] for key in keys]
    for number, (method, _) in enumerate(methods):
        own = rows[number * len(clients) : (number + 1) * len(clients)]
        run["entries"].append(bare_entry(method.name, method.name, asdict(method), columns(own)))
    return Comparison(run)


def _check_once(names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{', '.join(twice)} comes more than once, and rows are told apart by the method's name: compare "
            "each variant on its own, or use a recipe, whose entries have labels"
        )


def _row(model: nn.Module, evaluator: Evaluator, client: int, method: Method, source_info: SourceInfo) -> Row:
    adapter, name = method.adapter(model, source_info), evaluator.target[client].id
    batches = evaluator.stream(client)[0]
    try:
        figures, seconds = evaluator.judge(client, adapter)
    except BatchError as error:
        reason = _fault_of(model, batches) or error
        raise BatchError(f"{method.name} fails at client {name!r}: {reason}") from error
    cost = seconds / plain_seconds(model, batches)
    return {
        "method": method.name,
        "config": asdict(method),
        "client": name,
        **figures,
        "cost": {"time": cost, "extra_bytes": extra_bytes(adapter, model)},
    }


def _fault_of(model: nn.Module, batches: Sequence[Tensor]) -> BatchError | None:
    """Of the global model itself, if its own logits are not finite; no method is to blame for that."""
    try:
        for batch in batches:
            check_finite(plain(model)(batch))
    except BatchError as error:
        return error
    except Exception:  # what it cannot process at all, the method's own error says best
        return None
    return None


def _setting(model: nn.Module, evaluator: Evaluator) -> dict[str, Any]:
    """What all rows have in common; rows of another setting are not taken over."""
    images = hashlib.sha256()
    for number in evaluator.clients():
        client = evaluator.target[number]
        images.update(repr((client.info.name, client.corruption)).encode())
        order = evaluator.positions(client)
        images.update(client.ids[order].tobytes())
        images.update(evaluator.labels(client)[order].tobytes())
    return {
        "model": weights_hash(model),
        "network": model_hash(model),
        "clients": [evaluator.target[client].id for client in evaluator.clients()],
        "images": images.hexdigest(),
        "batch_size": evaluator.batch_size,
        "order": evaluator.order,
        "seed": evaluator.seed,
    }


def _hash_of(source_info: SourceInfo) -> str:
    said = [(kind, rates.values.tolist()) for kind, rates in source_info.rates.items()]
    told = [(name, tensor.tolist()) for name, tensor in source_info.summary.items()]
    return hashlib.sha256(repr([said, told]).encode()).hexdigest()
