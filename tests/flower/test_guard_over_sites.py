"""A guard over sites, without a network: that of the local engine, and a reason for every fault."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message
from torch import Tensor

from tests.helpers.flower.in_process import InProcessGrid, begin_model, local_clients, make_site
from ttpfl.core.gain import GAIN, RANGE, RIGHT, Sums
from ttpfl.core.lessons import LESSONS
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings, learn
from ttpfl.federation.common.guard_vector import EXAMINE, TEACH, Exam, GuardVector, Taught
from ttpfl.flower.run_spec import RunSpec
from ttpfl.flower.server_app import carry_out

NAMES = ["north", "south", "west", "east", "centre"]
SETTINGS = LearnSettings(batch_size=6, rounds=1, lr=500.0, workers=0, guard=True)


ALLOWED = '[policy]\nkinds = ["learn", "guard"]\n'


def sites_in(folder: Path, policies: dict[str, str] | None = None) -> dict[str, Path]:
    policies = policies or {}
    return {
        name: make_site(folder / name, name, number, policies.get(name, ALLOWED))
        for number, name in enumerate(NAMES)
    }


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sites_in(tmp_path_factory.mktemp("sites"))


def rates_over(grid: InProcessGrid, tmp_path: Path, name: str = "run") -> Rates:
    begin_model(tmp_path / "model.safetensors")
    out = tmp_path / name
    spec = RunSpec("learn", str(tmp_path / "model.safetensors"), str(out), NAMES, asdict(SETTINGS))
    carry_out(spec, grid)  # type: ignore[arg-type]
    return Rates.load(out / "rates.safetensors")


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in numbers(value[key])]
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in numbers(item)]
    return [float(value)] if value != "" else []


def is_guard(message: Message, round_number: int | None = None) -> bool:
    if "task" not in message.content.config_records:
        return False
    task = message.content["task"]
    return task["kind"] == "guard" and round_number in (None, task["round"])


def test_a_guard_over_sites_is_that_of_the_local_engine(sites: dict[str, Path], tmp_path: Path) -> None:
    grid = InProcessGrid(sites)
    rates = rates_over(grid, tmp_path)
    found = rates.guard
    local = learn(begin_model(tmp_path / "model.safetensors"), local_clients(sites), SETTINGS).rates.guard
    assert found is not None
    assert local is not None
    assert local.estimator is not None
    assert max(map(abs, local.estimator.numbers[:GAIN])) > 1e-3, "there is something to compare"
    assert found.covers(rates.values)
    found, local = (replace(guard, values="") for guard in (found, local))
    assert numbers(found.as_json()) == pytest.approx(numbers(local.as_json()), rel=1e-6, abs=1e-6)
    kinds = [message.content["task"]["kind"] for message in grid.sent if "task" in message.content]
    assert kinds[-10:] == ["guard"] * 10
    assert "guard" not in kinds[:-10]
    # What a site discloses: one vector, and how many samples it has.
    content = grid.replies[-1].content
    assert dict(content["metrics"]) == {"samples": 12}
    assert list(content["arrays"]) == ["vector"]


@pytest.mark.slow
def test_a_guard_is_learned_again_after_a_kill(sites: dict[str, Path], tmp_path: Path) -> None:
    whole = rates_over(InProcessGrid(sites), tmp_path)

    def die(name: str, reply: Message) -> Message:
        if any(is_guard(message, EXAMINE) for message in dying.sent):
            raise ConnectionError("the server app was killed")
        return reply

    dying = InProcessGrid(sites, fault=die)
    with pytest.raises(ConnectionError):
        rates_over(dying, tmp_path, "killed")
    again = InProcessGrid(sites)
    assert rates_over(again, tmp_path, "killed").guard == whole.guard
    assert all(is_guard(message) for message in again.sent), "the rates were not learned again"


@pytest.mark.slow
def test_sites_may_refuse(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refuse = '[policy]\nkinds = ["learn", "train"]\n'
    rates = rates_over(InProcessGrid(sites_in(tmp_path, {"west": refuse, "east": refuse})), tmp_path)
    assert rates.guard is None
    assert float(rates.values.abs().max()) > 1e-3, "they take part in the rates"
    text = "\n".join(caplog.messages)
    assert "guard: client 'west' is left out" in text
    assert "tasks of the kind 'guard' are not allowed here" in text
    assert "the rates get no guard: only 3 source clients took part, and at least 4 are needed" in text


@pytest.mark.slow
def test_an_impossible_reply_is_left_out(
    sites: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def enlarged(name: str, reply: Message) -> Message:
        if name == "south" and is_guard(grid.sent[-1], TEACH):
            vector = reply.content["arrays"]["vector"].numpy().copy()
            vector[:] *= 1e6
            reply.content["arrays"] = ArrayRecord({"vector": Array(vector)})
        return reply

    grid = InProcessGrid(sites, fault=enlarged)
    assert rates_over(grid, tmp_path).guard is not None
    assert "guard: client 'south' is left out: it has sums over" in "\n".join(caplog.messages)


LAYOUT, SAMPLES = GuardVector(rates=7, modules=3), 40


def taught(change: Callable[[Taught], object]) -> Tensor:
    """The reply of a client with random features, after a change."""
    random = torch.Generator().manual_seed(0)

    def sums(features: int) -> Sums:
        x = torch.rand(SAMPLES, features, generator=random, dtype=torch.float64)
        x[:, 0] = 1
        return Sums.of(x, 2 * torch.rand(SAMPLES, generator=random, dtype=torch.float64) - 1)

    parts = Taught(torch.rand(8, generator=random), sums(GAIN), sums(RIGHT), sums(RANGE).gram)
    parts = parts._replace(gain=Sums(parts.gain.gram / 10, parts.gain.moment / 10))
    change(parts)
    return LAYOUT.taught(parts)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda t: None, None),
        (lambda t: t.extremes[2].fill_(-1), "a negative norm"),
        (lambda t: t.extremes[2].fill_(torch.nan), "not finite"),
        (lambda t: t.gain.gram.mul_(-1), "negative squares"),
        (lambda t: t.gain.gram.mul_(100), "not 0 to 14"),
        (lambda t: t.right.gram[0, 0].fill_(41), "over 41 samples, not 0 to 40"),
        (lambda t: t.gain.gram[3, 5].add_(1), "not symmetric"),
        (lambda t: t.right.gram[1:3, 1:3].mul_(torch.eye(2)).add_(99 - 99 * torch.eye(2)),
         "larger than their squares allow"),
        (lambda t: t.right.moment[1].fill_(-50), "larger than their squares allow"),
        (lambda t: t.usual[0, 0].fill_(81), "over 81 samples, not 0 to 80"),
        (lambda t: t.usual[3, 5].add_(1), "not symmetric"),
    ],
)  # fmt: skip
def test_faults_of_what_clients_teach(change: Callable[..., object], fault: str | None) -> None:
    found = LAYOUT.fault(TEACH, taught(change), SAMPLES)
    assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize(
    ("exam", "fault"),
    [
        (Exam(40, 20, 25, 22, 1, 3.5), None),
        (Exam(41, 20, 25, 22, 1, 3.5), "whole numbers from 0 to 40"),
        (Exam(39.5, 20, 25, 22, 1, 3.5), "whole numbers from 0 to 40"),
        (Exam(40, -1, 25, 22, 1, 3.5), "whole numbers from 0 to 40"),
        (Exam(40, 20, 25, 22, 0.5, 3.5), "whole numbers from 0 to 40"),
        (Exam(30, 20, 35, 22, 1, 3.5), "more right predictions than samples"),
        (Exam(30, 20, 25, 32, 1, 3.5), "more right predictions than samples"),
        (Exam(40, 20, 25, 22, 1, float("inf")), "not finite"),
        (Exam(40, 20, 25, 22, 1, 401.0), "beyond 400 predictions"),
        (Exam(40, 20, 25, 22, 1, -1e29), "beyond 400 predictions"),
    ],
)
def test_faults_of_exams(exam: Exam, fault: str | None) -> None:
    reply = LAYOUT.examined([exam] * len(LESSONS), 21.5)
    found = LAYOUT.fault(EXAMINE, reply, SAMPLES)
    assert found is None if fault is None else fault in str(found)


def test_an_impossible_estimate() -> None:
    reply = LAYOUT.examined([Exam(40, 20, 25, 22, 1, 3.5)] * len(LESSONS), -1e29)
    assert "more than 400 right predictions" in str(LAYOUT.fault(EXAMINE, reply, SAMPLES))
