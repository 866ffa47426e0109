"""Messages and the files of a federation, which need Flower."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from tests.fuzz.kinds import BUILD, Kind
from tests.fuzz.mutations import changed, damaged, json_changed, json_resealed, toml_changed
from ttpfl.core.gain import GAIN, RANGE, RIGHT, Sums
from ttpfl.federation.common.guard_vector import TEACH, GuardVector, Taught
from ttpfl.federation.server.guard_fit import fitted
from ttpfl.federation.settings import LearnSettings
from ttpfl.flower.folder import Federation
from ttpfl.flower.messages import (
    Task,
    model_records,
    read_model,
    read_reply,
    read_task,
    read_vectors,
    reply_records,
    task_records,
)
from ttpfl.flower.model_store import card_of, keep
from ttpfl.flower.policy import Budget, Policy
from ttpfl.flower.site import Site
from ttpfl.models import build

LENGTH = 23
TASK = Task("learn", 1, 0, 3, asdict(LearnSettings(rounds=3)), "0" * 64, "1" * 64, {"granularity": "tensor"})
REPORT = {"validation": {"samples": 12, "loss": 3.5, "right": 7}}


def frozen(content: RecordDict) -> dict[str, Any]:
    """Records as JSON; the bytes of arrays as Latin-1."""
    arrays = {
        name: {
            key: [one.dtype, list(one.shape), one.stype, one.data.decode("latin-1")]
            for key, one in record.items()
        }
        for name, record in content.array_records.items()
    }
    plain = {name: dict(record) for name, record in content.config_records.items()}
    metrics = {name: dict(record) for name, record in content.metric_records.items()}
    return {"arrays": arrays, "plain": plain, "metrics": metrics}


def thawed(said: dict[str, Any]) -> RecordDict:
    """Records again; whatever Flower itself does not take never reaches this library."""
    content = RecordDict()
    for name, record in said["arrays"].items():
        content[name] = ArrayRecord(
            {key: Array(dtype, tuple(shape), stype, data.encode("latin-1"))
             for key, (dtype, shape, stype, data) in record.items()}
        )  # fmt: skip
    for name, record in said["plain"].items():
        content[name] = ConfigRecord(record)
    for name, record in said["metrics"].items():
        content[name] = MetricRecord(record)
    return content


def message_changed(data: bytes, luck: Random) -> bytes:
    """Another value in a record, or damage to the bytes of an array."""
    said = json.loads(data)
    record = luck.choice(list(said["arrays"])) if said["arrays"] and luck.random() < 0.4 else None
    if record is None or not said["arrays"][record]:
        return json.dumps(changed(said, luck)).encode()
    key = luck.choice(list(said["arrays"][record]))
    said["arrays"][record][key][3] = damaged(said["arrays"][record][key][3].encode("latin-1"), luck).decode(
        "latin-1"
    )
    return json.dumps(said).encode()


def _received(path: Path) -> RecordDict | None:
    """What Flower hands over; None if it does not."""
    try:
        return thawed(json.loads(path.read_bytes()))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, UnicodeEncodeError):
        return None


def _answer(path: Path) -> None:
    path.write_text(json.dumps(frozen(reply_records(TASK, torch.linspace(-1, 1, LENGTH), REPORT))))


def _read_reply(path: Path) -> Any:
    if (content := _received(path)) is None:
        return None
    vector, report = read_reply(content, TASK, LENGTH, 1000.0)
    assert vector.shape == (LENGTH,)
    assert bool(vector.isfinite().all())
    return report


GUARD = replace(TASK, kind="guard", round=0)
LAYOUT = GuardVector(rates=5, modules=3)


def _guard(path: Path) -> None:
    rows = (torch.ones(12, size, dtype=torch.float64) for size in (GAIN, RIGHT, RANGE))
    gain, right, usual = (Sums.of(part, part[:, 0]) for part in rows)
    vector = LAYOUT.taught(Taught(torch.ones(8), gain, right, usual.gram))
    path.write_text(json.dumps(frozen(reply_records(GUARD, vector, {"samples": 12}))))


def _read_guard(path: Path) -> Any:
    if (content := _received(path)) is None:
        return None
    vector, report = read_reply(content, GUARD, LAYOUT.length, 1e30)
    if LAYOUT.fault(TEACH, vector, report["samples"]) is None:
        coefficients = fitted(dict.fromkeys(range(4), vector), LAYOUT)[1]
        assert all(bool(part.isfinite().all()) for part in coefficients)
    return report


def _task(path: Path) -> None:
    path.write_text(json.dumps(frozen(task_records(TASK, torch.zeros(LENGTH), torch.zeros(3)))))


def _read_task(path: Path) -> Any:
    if (content := _received(path)) is None:
        return None
    policy = Policy()
    task = read_task(content)
    policy.check(task)
    vector, _ = read_vectors(content, policy.largest_model)
    policy.check_vector(task.kind, vector)
    return task


def _model(path: Path) -> None:
    torch.manual_seed(0)
    model = build(**BUILD).eval()
    path.write_text(json.dumps(frozen(model_records(card_of(model, BUILD), model.state_dict()))))


def _read_model(path: Path) -> Any:
    if (content := _received(path)) is None:
        return None
    policy = Policy()
    card, state = read_model(content, policy.largest_model, policy.check_model)
    keep(path.with_name("kept.safetensors"), card, state, policy.largest_model, policy.most_models)
    return card.hash


def _same_model(found: Any, original: Any) -> bool:
    """A model is known by its hash: nothing else is kept."""
    return found in (None, original)


def _federation(path: Path) -> None:
    path.write_text('name = "own"\nhost = "127.0.0.1"\nport = 9092\nsites = ["north", "south"]\n')


SITE = """
name = "north"
data = "data"
layout = "arrays"
classes = ["cat", "dog"]
image_size = 32
validation = 0.2

[policy]
kinds = ["learn"]
models = ["shallow_cnn", "resnet18"]
local_epochs = 10
smallest_batch = 2
fewest_samples = 10
local_noise = 5.0
epsilon = 8.0
"""


def _site(path: Path) -> None:
    path.write_text(SITE)


LOCAL = Policy(kinds=["learn"], local_noise=1.0, epsilon=100.0)


def _privacy(path: Path) -> None:
    path.unlink(missing_ok=True)
    Budget(path, LOCAL).spend(LearnSettings(privacy="local", noise=2.0))


def _read_privacy(path: Path) -> Any:
    """What was spent, and what is written then."""
    budget = Budget(path, LOCAL)
    before = budget.spent
    budget.spend(LearnSettings(privacy="local", noise=2.0))
    if not 0 <= before < budget.spent <= 100:
        raise AssertionError(f"an answer went out for nothing: {before}, then {budget.spent}")
    return before, path.read_bytes()


MESSAGES = (message_changed,)
KINDS = [
    Kind("answer", "answer.json", _answer, _read_reply, MESSAGES, own=True),
    Kind("answer about a guard", "guard.json", _guard, _read_guard, MESSAGES, own=True),
    Kind("task", "task.json", _task, _read_task, MESSAGES, own=True),
    Kind("model message", "model.json", _model, _read_model, MESSAGES, fine=_same_model),
    Kind(
        "federation.toml", "federation.toml", _federation, lambda path: Federation.read(path.parent),
        (damaged, toml_changed), own=True,
    ),
    Kind("site.toml", "site.toml", _site, Site.read, (damaged, toml_changed), own=True),
    Kind("privacy.json", "privacy.json", _privacy, _read_privacy, (damaged, json_changed)),
    Kind("privacy.json, resealed", "privacy.json", _privacy, _read_privacy, (json_resealed,), own=True),
]  # fmt: skip
