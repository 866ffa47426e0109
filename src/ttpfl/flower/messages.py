"""Everything that travels between server and sites: tasks, replies and the model.

Pure translations between this library's vectors and reports and Flower's records. The receiver checks every
field: a missing, unexpected or out-of-range value is refused with a reason.
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
from ttpfl.federation.settings import TRUST_REGION
from ttpfl.flower.message_size import WIDEST, check_size
from ttpfl.util.npy import declared_size
from ttpfl.util.reading import parse_json

if TYPE_CHECKING:
    from torch import Tensor

    from ttpfl.federation.common.state import Report

TRAIN = "train.task"
MODEL = "query.model"
PING = "query.nudge"  # an empty message; see `Exchange.ping`

REFUSED, FAILED, LACKING = 101, 102, 103
"""Codes of error replies: the site refused, failed, or lacks the model. Flower's own codes are below 100."""

_TYPES = {np.dtype(name) for name in ("f4", "f8", "i1", "i2", "i4", "i8", "u1")}
"""Types of arrays: those that torch computes with, in this machine's byte order."""

MOST_SAMPLES = 10**8
"""Limit in a reply. At a thousand per second, this many samples would take more than a day."""

LARGEST_LOSS = 1e30
"""Limit per sample in a reply. The search must see how bad a step is that goes too far."""

_ABOUT = ("round", "model", "fingerprint")  # fields of a task that its reply repeats
_METRIC = re.compile(r"(samples|(tallies\.)?(train|validation|before)\.(samples|loss|right))")


@dataclass(frozen=True)
class Task:
    """One site's part in one round."""

    kind: str
    """learn, guard or train."""
    round: int
    client: int
    """The site's number among all sites."""
    clients: int
    settings: dict[str, Any]
    """Fields of `LearnSettings` or `TrainSettings`."""
    model: str
    """Hash of the run's model; in training, of the initial one."""
    fingerprint: str
    """Fingerprint of the model's architecture."""
    rates: dict[str, Any]
    """For learning, and for a guard: granularity, `only`, and what belongs to them."""


@dataclass(frozen=True)
class ModelCard:
    """A model's description, which is checked before its weights are decoded."""

    hash: str
    fingerprint: str
    build: dict[str, Any]
    """Arguments of `ttpfl.models.build`."""


def task_records(task: Task, vector: Tensor, start: Tensor | None = None) -> RecordDict:
    """A task with the vector for all sites, and the start vector for this one."""
    arrays = {"vector": vector} if start is None else {"vector": vector, "start": start}
    return RecordDict({"task": _config(asdict(task)), "arrays": _arrays(arrays)})


def read_task(content: RecordDict) -> Task:
    """Read a task without its vectors."""
    return Task(**_fields(content, "task", Task))


def read_vectors(content: RecordDict, largest: int) -> tuple[Tensor, Tensor | None]:
    """Read the vector for all sites, and the start vector for this one; together at most `largest` bytes."""
    check_size(content, largest)
    arrays = _tensors(content, "arrays", {"vector"}, {"start"})
    return arrays["vector"], arrays.get("start")


def model_records(card: ModelCard, state: Mapping[str, Tensor]) -> RecordDict:
    """A model, for a site that lacks it."""
    return RecordDict({"model": _config(asdict(card)), "arrays": _arrays(state)})


def read_model(
    content: RecordDict, largest: int, check: Callable[[ModelCard], None]
) -> tuple[ModelCard, dict[str, Tensor]]:
    """Read a card and weights of at most `largest` bytes, decoded only if `check` accepts the card."""
    check_size(content, largest)
    card = ModelCard(**_fields(content, "model", ModelCard))
    check(card)
    return card, _tensors(content, "arrays")


def reply_records(task: Task, vector: Tensor, report: Report) -> RecordDict:
    """Everything that a site discloses: the vector, sums over its samples, and the task they belong to."""
    about = _config({name: getattr(task, name) for name in _ABOUT})
    metrics = MetricRecord({**flattened(report)})
    return RecordDict({"arrays": _arrays({"vector": vector}), "metrics": metrics, "about": about})


def read_reply(content: RecordDict, task: Task, length: int, largest: float) -> tuple[Tensor, Report]:
    """Read the vector and the report of a reply to `task`, or raise a RefusedError with the reason."""
    check_size(content, length * WIDEST)
    about = _values(content, "about")
    for name in _ABOUT:
        if (actual := about.get(name)) != (expected := getattr(task, name)):
            raise RefusedError(f"its reply is for another {name}: {actual!r:.80}, not {expected!r}")
    vector = _tensors(content, "arrays", {"vector"})["vector"]
    if vector.shape != (length,):
        raise RefusedError(f"its reply has the shape {tuple(vector.shape)}, not {(length,)}")
    if not bool(vector.isfinite().all()):
        raise RefusedError("its reply is not finite")
    if length and (peak := float(vector.abs().max())) > largest:
        raise RefusedError(f"its reply has the value {peak:g}, which is out of bounds ({largest:g})")
    report = unflattened(dict(content.metric_records.get("metrics", MetricRecord())))
    _check_complete(task, report)
    return vector, report


def _check_complete(task: Task, report: Report) -> None:
    """Refuse a report with missing values, since the server adds them up."""
    if task.kind == "guard":
        if report.keys() != {"samples"}:
            raise RefusedError(f"its reply reports {sorted(report)}, not ['samples']")
        return
    sums = report if task.kind == "learn" else report.get("tallies", {})
    if task.kind == "train" and (not report.get("samples") or "train" not in sums):
        raise RefusedError("its reply lacks the number of training samples, or has none")
    if task.settings.get("optimizer") == TRUST_REGION and not sums.get("validation", {}).get("samples"):
        raise RefusedError("its reply lacks the loss over its validation samples, or has none")
    for name, metrics in sums.items():
        if not isinstance(metrics, dict) or metrics.keys() | {"right"} != {"samples", "loss", "right"}:
            raise RefusedError(f"its reply has incomplete metrics for {name!r}")
        _check_sums(name, **metrics)


def _check_sums(name: str, samples: int, loss: float, right: int = 0) -> None:
    """Check sums over samples. Only validation data may be empty. `right` may be unknown."""
    if not samples and name != "validation":
        raise RefusedError(f"its reply has no samples for {name!r}")
    if right > samples:
        raise RefusedError(f"its reply has {right} correct of {samples} samples for {name!r}")
    if loss > LARGEST_LOSS * samples:
        raise RefusedError(
            f"its reply has a loss of {loss:g} over {samples} samples for {name!r}, which is out of bounds "
            f"({LARGEST_LOSS:g} per sample)"
        )


def flattened(report: Report, prefix: str = "") -> dict[str, int | float]:
    """A report as names and numbers, without unknown values.

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
    """The report of flattened metrics; refuses unknown names and impossible values.

    >>> unflattened({"samples": 3, "tallies.train.loss": 0.5})
    {'samples': 3, 'tallies': {'train': {'loss': 0.5}}}
    """
    report: Report = {}
    for name, value in metrics.items():
        if not _METRIC.fullmatch(name):
            raise RefusedError(f"its reply has a metric {name!r}, which was not requested")
        _check_metric(name, value)
        *path, last = name.split(".")
        parent = report
        for part in path:
            parent = parent.setdefault(part, {})
        parent[last] = value
    return report


def _check_metric(name: str, value: Any) -> None:
    entry = f"its reply has {value!r:.60} for {name!r}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e308:
        raise RefusedError(entry)
    if value < 0:
        raise RefusedError(f"{entry}, which must not be negative")
    if name.endswith("loss"):
        return
    if not isinstance(value, int):
        raise RefusedError(f"{entry}, which must be an integer")
    if value > MOST_SAMPLES:
        raise RefusedError(f"{entry}, which is out of bounds ({MOST_SAMPLES} samples)")


def _config(values: Mapping[str, Any]) -> ConfigRecord:
    # Flower's records hold plain values only, so tables travel as JSON.
    return ConfigRecord(
        {name: json.dumps(value) if isinstance(value, dict) else value for name, value in values.items()}
    )


def _values(content: RecordDict, record: str) -> dict[str, Any]:
    if record not in content.config_records:
        raise RefusedError(f"the message has no record {record!r}")
    return dict(content.config_records[record])


def _fields(content: RecordDict, record: str, kind: type[Any]) -> dict[str, Any]:
    """The fields of a dataclass, each of the right type."""
    values, types = _values(content, record), get_type_hints(kind)
    if values.keys() != types.keys():
        raise RefusedError(f"the record {record!r} has {sorted(values)}, not {sorted(types)}")
    for name, type_ in types.items():
        if type_ in (int, str):
            if type(values[name]) is not type_:
                raise RefusedError(f"{name} in {record!r} is {values[name]!r:.80}, not {type_.__name__}")
            continue
        try:
            values[name] = parse_json(values[name])
        except (TypeError, ValueError):
            raise RefusedError(f"{name} in {record!r} is not valid JSON") from None
        if not isinstance(values[name], dict):
            raise RefusedError(f"{name} in {record!r} is not a table")
    return values


def _arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()})


def _tensors(
    content: RecordDict, record: str, required: set[str] | None = None, optional: set[str] | None = None
) -> dict[str, Tensor]:
    """The tensors of a record; with `required`, no others are accepted except `optional` ones."""
    if record not in content.array_records:
        raise RefusedError(f"the message has no record {record!r}")
    arrays = content.array_records[record]
    if required is not None and not required <= arrays.keys() <= required | (optional or set()):
        raise RefusedError(f"the record {record!r} has {sorted(arrays)}, not {sorted(required)}")
    return {name: _tensor(name, array) for name, array in arrays.items()}


def _tensor(name: str, array: Array) -> Tensor:
    try:
        declared = declared_size(BytesIO(array.data))
        if declared > len(array.data):
            raise ValueError(f"it announces {declared} bytes but has {len(array.data)}")
        values: Any = array.numpy()  # numpy's own format, read without pickle
    except Exception as error:  # invalid bytes can fail in any way inside the reader
        raise RefusedError(f"cannot read array {name!r}: {type(error).__name__}: {error}") from None
    if values.dtype not in _TYPES:
        raise RefusedError(f"array {name!r} has the type {values.dtype}, which is not supported")
    import torch  # takes seconds, which a site that only refuses does not have to wait

    return torch.from_numpy(np.array(values, order="C"))
