"""What travels between server and sites, and nothing else: tasks, answers, and the model.

Pure translations between this library's vectors and reports and Flower's records. Whoever gets a message
checks every field: what is missing, too much or out of range is refused with a reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from ttpfl.errors import RefusedError
from ttpfl.flower.message_size import WIDEST, check_size
from ttpfl.util.npy import declared_size
from ttpfl.util.reading import parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from ttpfl.federation.common.state import Report

TRAIN = "train.task"
MODEL = "query.model"
NUDGE = "query.nudge"  # empty; see `Exchange.nudge`

REFUSED, FAILED, LACKING = 101, 102, 103
"""Codes of error replies: a site does not want to, could not, or lacks the model. Below 100: Flower's."""

_TYPES = {np.dtype(name) for name in ("f4", "f8", "i1", "i2", "i4", "i8", "u1")}
"""Of arrays: those that torch computes with, in this machine's order of bytes."""

MOST_SAMPLES = 10**8
"""In an answer: with a thousand a second it would take more than a day."""

LARGEST_LOSS = 1e6
"""Per sample, in an answer: a chance of e^-1000000 for the right class."""

_METRIC = re.compile(r"(samples|(tallies\.)?(train|validation|before)\.(samples|loss|right))")


@dataclass(frozen=True)
class Task:
    """One site's part in one round."""

    kind: str
    """learn or train."""
    round: int
    client: int
    """The site's number among all."""
    clients: int
    settings: dict[str, Any]
    """Fields of `LearnSettings` or `TrainSettings`."""
    model: str
    """Hash of the model that the run is about; when training, of the one that it began with."""
    fingerprint: str
    """Of the model's architecture."""
    rates: dict[str, Any]
    """Granularity and `only`, when learning."""


@dataclass(frozen=True)
class ModelCard:
    """What a model is, before its weights are looked at."""

    hash: str
    fingerprint: str
    build: dict[str, Any]
    """Arguments of `ttpfl.models.build`."""


def task_records(task: Task, vector: Tensor, start: Tensor | None = None) -> RecordDict:
    """A task with the vector that all sites get, and what this one alone gets."""
    arrays = {"vector": vector} if start is None else {"vector": vector, "start": start}
    return RecordDict({"task": _config(asdict(task)), "arrays": _arrays(arrays)})


def read_task(content: RecordDict) -> Task:
    """The task, without its vectors."""
    return Task(**_fields(content, "task", Task))


def read_vectors(content: RecordDict, largest: int) -> tuple[Tensor, Tensor | None]:
    """The vector that all sites get, and what this one alone gets; together `largest` bytes at most."""
    check_size(content, largest)
    arrays = _tensors(content, "arrays", {"vector"}, {"start"})
    return arrays["vector"], arrays.get("start")


def model_records(card: ModelCard, state: Mapping[str, Tensor]) -> RecordDict:
    """A model for a site that lacks it."""
    return RecordDict({"model": _config(asdict(card)), "arrays": _arrays(state)})


def read_model(
    content: RecordDict, largest: int, check: Callable[[ModelCard], None]
) -> tuple[ModelCard, dict[str, Tensor]]:
    """The card and the weights, decoded if `check` lets the card pass; up to `largest` bytes."""
    check_size(content, largest)
    card = ModelCard(**_fields(content, "model", ModelCard))
    check(card)
    return card, _tensors(content, "arrays")


def answer_records(task: Task, vector: Tensor, report: Report) -> RecordDict:
    """All that a site gives away: the vector, sums over its samples, and what they belong to."""
    about = {"round": task.round, "model": task.model, "fingerprint": task.fingerprint}
    return RecordDict(
        {
            "arrays": _arrays({"vector": vector}),
            "metrics": MetricRecord({**flattened(report)}),
            "about": _config(about),
        }
    )


def read_answer(content: RecordDict, task: Task, length: int, largest: float) -> tuple[Tensor, Report]:
    """The vector and the report of an answer to `task`; a RefusedError says what is wrong with it."""
    check_size(content, length * WIDEST)
    about = _values(content, "about")
    for name in ("round", "model", "fingerprint"):
        if about.get(name) != getattr(task, name):
            raise RefusedError(
                f"its answer is about another {name}: {about.get(name)!r:.80}, not {getattr(task, name)!r}"
            )
    vector = _tensors(content, "arrays", {"vector"})["vector"]
    if vector.shape != (length,):
        raise RefusedError(f"its answer has the shape {tuple(vector.shape)}, not {(length,)}")
    if not bool(vector.isfinite().all()):
        raise RefusedError("its answer is not finite")
    peak = float(vector.abs().max()) if length else 0.0
    if peak > largest:
        raise RefusedError(f"its answer has the value {peak:g}, which is out of bounds ({largest:g})")
    report = unflattened(dict(content.metric_records.get("metrics", MetricRecord())))
    _check_complete(task.kind, report)
    return vector, report


def _check_complete(kind: str, report: Report) -> None:
    """The server adds up what is in a report, so nothing may be missing."""
    tallies = report if kind == "learn" else report.get("tallies", {})
    if kind == "train" and (not report.get("samples") or "train" not in tallies):
        raise RefusedError("its answer does not say how many samples it trained on, or that there were none")
    for name, tally in tallies.items():
        if not isinstance(tally, dict) or tally.keys() | {"right"} != {"samples", "loss", "right"}:
            raise RefusedError(f"its answer has an incomplete count of {name!r}")
        _check_tally(name, **tally)


def _check_tally(name: str, samples: int, loss: float, right: int = 0) -> None:
    """Sums over samples, of which only validation data may have none. What is right may be unknown."""
    if not samples and name != "validation":
        raise RefusedError(f"its answer has no samples for {name!r}")
    if right > samples:
        raise RefusedError(f"its answer has {right} of {samples} right for {name!r}")
    if loss > LARGEST_LOSS * samples:
        raise RefusedError(
            f"its answer has a loss of {loss:g} over {samples} samples for {name!r}, which is out of bounds "
            f"({LARGEST_LOSS:g} per sample)"
        )


def flattened(report: Report, prefix: str = "") -> dict[str, int | float]:
    """A report as names and numbers; what is unknown is left out.

    >>> flattened({"samples": 3, "tallies": {"train": {"loss": 0.5, "right": None}}})
    {'samples': 3, 'tallies.train.loss': 0.5}
    """
    flat: dict[str, int | float] = {}
    for name, value in report.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat


def unflattened(metrics: Mapping[str, Any]) -> Report:
    """The report again; unknown names, and numbers that no count or loss can be, are refused.

    >>> unflattened({"samples": 3, "tallies.train.loss": 0.5})
    {'samples': 3, 'tallies': {'train': {'loss': 0.5}}}
    """
    report: Report = {}
    for name, value in metrics.items():
        if not _METRIC.fullmatch(name):
            raise RefusedError(f"its answer has a figure {name!r}, which nobody asked for")
        _check_figure(name, value)
        *path, last = name.split(".")
        home = report
        for part in path:
            home = home.setdefault(part, {})
        home[last] = value
    return report


def _check_figure(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e308:
        raise RefusedError(f"its answer has {value!r:.60} for {name!r}")
    if value < 0:
        raise RefusedError(f"its answer has {value!r} for {name!r}, which cannot be negative")
    if name.endswith("loss"):
        return
    if not isinstance(value, int):
        raise RefusedError(f"its answer has {value!r} for {name!r}, which must be a whole number")
    if value > MOST_SAMPLES:
        raise RefusedError(
            f"its answer has {value!r} for {name!r}, which is out of bounds ({MOST_SAMPLES} samples)"
        )


def _config(values: Mapping[str, Any]) -> ConfigRecord:
    # Flower's records take plain values only: what has a structure travels as JSON.
    return ConfigRecord(
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in values.items()}
    )


def _values(content: RecordDict, record: str) -> dict[str, Any]:
    if record not in content.config_records:
        raise RefusedError(f"the message has no record {record!r}")
    return dict(content.config_records[record])


def _fields(content: RecordDict, record: str, kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass, each of the right type."""
    given, wanted = _values(content, record), get_type_hints(kind)
    if given.keys() != wanted.keys():
        raise RefusedError(f"the record {record!r} has {sorted(given)}, not {sorted(wanted)}")
    for name, type_ in wanted.items():
        if type_ in (int, str):
            if type(given[name]) is not type_:
                raise RefusedError(f"{name} in {record!r} is {given[name]!r:.80}")
            continue
        try:
            given[name] = parse_json(given[name])
        except (TypeError, ValueError):
            raise RefusedError(f"{name} in {record!r} is not sound JSON") from None
        if not isinstance(given[name], dict):
            raise RefusedError(f"{name} in {record!r} is not a table")
    return given


def _arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()})


def _tensors(
    content: RecordDict, record: str, needed: set[str] | None = None, allowed: set[str] | None = None
) -> dict[str, Tensor]:
    """Tensors of a record; with `needed`, exactly these and at most `allowed`."""
    if record not in content.array_records:
        raise RefusedError(f"the message has no record {record!r}")
    arrays = content.array_records[record]
    if needed is not None and not needed <= arrays.keys() <= needed | (allowed or set()):
        raise RefusedError(f"the record {record!r} has {sorted(arrays)}, not {sorted(needed)}")
    return {name: _tensor(name, array) for name, array in arrays.items()}


def _tensor(name: str, array: Array) -> Tensor:
    try:
        declared = declared_size(BytesIO(array.data))
        if declared > len(array.data):
            raise ValueError(f"it announces {declared} bytes but has {len(array.data)}")
        found: Any = array.numpy()  # numpy's own format, read without pickle
    except Exception as error:  # junk can fail in any way inside the reader
        raise RefusedError(f"array {name!r} cannot be read: {type(error).__name__}: {error}") from None
    if found.dtype not in _TYPES:
        raise RefusedError(f"array {name!r} has the type {found.dtype}, which is not used here")
    import torch  # seconds: a site that only has to say no does not wait for it

    return torch.from_numpy(np.array(found, order="C"))
