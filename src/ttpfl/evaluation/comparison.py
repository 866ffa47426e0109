"""Comparing methods on all target clients: the same model, the same streams, the same seeds."""

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
from ttpfl.core.watch import Evidence
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
    """Sum the source clients' summaries of their validation data; empty if the method needs none."""
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
    """Run every method on every target client.

    Args:
        model: The global model; it is not changed.
        evaluator: Holds the labels.
        methods: Methods with their information from source clients; names must be distinct.
        run_dir: Stores finished rows (`rows.jsonl`), so that an interrupted comparison resumes.
        workers: The number of processes; one per core if None.
        progress: Called with the number of finished streams and of all streams.

    >>> from ttpfl import data, methods, models
    >>> population, labels, _ = data.federate("digits", shift="none", source_clients=8, target_clients=2)
    >>> evaluator = Evaluator(population.target[:1], labels, batch_size=200)
    >>> model = models.shallow_cnn(10, image_size=28).eval()
    >>> comparison = compare(model, evaluator, [(methods.make("none"), SourceInfo())], workers=0)
    >>> comparison.methods, len(comparison.of("none", "accuracy"))
    (['none'], 1)
    """
    workers = cores() if workers is None else workers
    if model.training:
        raise DataError(f"{type(model).__name__} is in training mode: put it into evaluation mode first")
    _check_distinct([method.name for method, _ in methods])
    clients, described, setting = evaluator.clients(), evaluator.described(), _setting(model, evaluator)
    jobs = [(number, stream) for number in range(len(methods)) for stream in evaluator.streams()]
    heads = [[method.name, method.identity(), _hash_of(source_info)] for method, source_info in methods]

    def key(number: int, client: int) -> str:
        return json.dumps([*heads[number], evaluator.target[client].id], sort_keys=True)

    journal = Journal(run_dir, setting)
    missing = [(n, stream) for n, stream in jobs if any(key(n, one) not in journal.rows for one in stream)]

    def work(position: int) -> list[Row]:
        number, stream = missing[position]
        with single_thread():
            return _rows(model, evaluator, stream, *methods[number])

    for position, rows in enumerate(in_order(work, len(missing), workers)):
        number, stream = missing[position]
        for client, row in zip(stream, rows, strict=True):
            journal.add(key(number, client), row)
        if progress is not None:
            progress(len(jobs) - len(missing) + position + 1, len(jobs))
    info = evaluator.target[0].info
    run = bare_run(info.name, setting["images"], info.classes, described)
    run |= {"seed": evaluator.seed, "config": stream_config(setting), "setting": setting}
    for number, (method, _) in enumerate(methods):
        method_rows = [journal.rows[key(number, client)] for client in clients]
        run["entries"].append(bare_entry(method.name, method.name, asdict(method), columns(method_rows)))
    return Comparison(run)


def _check_distinct(names: Sequence[str]) -> None:
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(
            f"{', '.join(repeated)} occurs more than once, but the method's name identifies a row: compare "
            "variants separately, or use a recipe, whose entries have labels"
        )


def _rows(
    model: nn.Module, evaluator: Evaluator, clients: tuple[int, ...], method: Method, source_info: SourceInfo
) -> list[Row]:
    """A row for each client of a stream; they share its cost."""
    adapter, names = method.adapter(model, source_info), [evaluator.target[client].id for client in clients]
    try:
        metrics, seconds = evaluator.judge(clients, adapter)
    except BatchError as error:
        reason = _model_error(model, evaluator.batches(clients)[0]) or error
        place = f"client {names[0]!r}" if len(names) == 1 else f"the {evaluator.order} stream of all clients"
        raise BatchError(f"{method.name} fails at {place}: {reason}") from error
    plain = plain_seconds(model, evaluator.batches(clients)[0])
    time = float(f"{seconds / plain:.4g}")  # more digits would be noise
    cost = {"time": time, "extra_bytes": extra_bytes(adapter, model)}
    # Of a stream of several clients, a guard knows only the whole.
    guard = guarded(adapter.evidence) if len(names) == 1 else {}
    return [
        {"method": method.name, "config": asdict(method), "client": name, **figures, "cost": cost, **guard}
        for name, figures in zip(names, metrics, strict=True)
    ]


def guarded(evidence: Evidence | None) -> dict[str, dict[str, float]]:
    """What a guard knew at the end of a stream, for results; nothing without a guard or its estimates."""
    if evidence is None or evidence.plain_accuracy is None or evidence.adapted_accuracy is None:
        return {}
    plain_model = evidence.plain_accuracy
    answering = plain_model if evidence.alarm else evidence.adapted_accuracy
    figures = {
        "estimate": answering.value,
        "low": answering.low,
        "high": answering.high,
        "plain": plain_model.value,
        "alarms": evidence.alarms,
        "stopped": int(evidence.alarm),
    }
    return {"guard": figures}


def _model_error(model: nn.Module, batches: Sequence[Tensor]) -> BatchError | None:
    """The error of the unadapted model, if it fails too: then the method is not the cause."""
    try:
        for batch in batches:
            check_finite(plain(model)(batch))
    except BatchError as error:
        return error
    return None


def _setting(model: nn.Module, evaluator: Evaluator) -> dict[str, Any]:
    """What all rows have in common; stored rows of another setting are not reused."""
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
    rates = [
        (kind, rates.values.tolist(), *(part for part in (rates.prior, rates.guard) if part))
        for kind, rates in source_info.rates.items()
    ]
    summary = [(name, tensor.tolist()) for name, tensor in source_info.summary.items()]
    return hashlib.sha256(repr([rates, summary]).encode()).hexdigest()
