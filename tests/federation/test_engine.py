"""Engines: results in order, the same bits, memory that does not grow, processes that end."""

import gc
import logging
import mmap
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.processes import alive, wait_until_gone
from ttpfl.errors import DataError
from ttpfl.federation.common.jobs import Engine, Job, MakeWork
from ttpfl.federation.engine import processes
from ttpfl.federation.engine.in_process import Serial
from ttpfl.federation.engine.processes import Processes
from ttpfl.util.parallel import in_order

LENGTH = 4
Do = Callable[[Job, Tensor, Tensor], dict[str, Any]]


def jobs(count: int, round_: int = 0) -> list[Job]:
    return [Job(number, f"client-{number}", round_) for number in range(count)]


def makes(do: Do) -> MakeWork:
    return lambda: do


def plain(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
    out.copy_(message * (job.client + 1) + job.round)
    return {"client": job.client, "pid": os.getpid(), "threads": torch.get_num_threads()}


def collected(engine: Engine, count: int, round_: int = 0) -> list[tuple[int, list[float], str | None]]:
    message = torch.arange(LENGTH, dtype=torch.float32)
    return [
        (result.job.client, result.vector.tolist(), result.failure)
        for result in engine.run(jobs(count, round_), message)
    ]


@pytest.fixture
def started() -> Iterator[Callable[..., Processes]]:
    engines: list[Processes] = []

    def start(do: Do, workers: int = 2, **options: Any) -> Processes:
        engines.append(Processes(makes(do), LENGTH, workers, **options))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def pids(engine: Processes) -> list[int]:
    return [worker.process.pid or 0 for worker in engine._workers]


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_results_are_in_order_whichever_client_is_first(
    started: Callable[..., Processes], workers: int, sticky: bool
) -> None:
    def slow_first(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        time.sleep(0.03 if job.client % 4 == job.round % 4 else 0)
        return plain(job, message, out)

    engine, serial = started(slow_first, workers, sticky=sticky), Serial(makes(plain), LENGTH)
    for number, count in enumerate((9, 9, 3, 12)):  # also with a larger cohort than before
        assert collected(engine, count, number) == collected(serial, count, number)


@pytest.mark.parametrize(("room", "slots"), [(0, 2 * 2 + 1), (9 * mmap.PAGESIZE, 9)])
def test_slots_do_not_grow_with_the_cohort(
    started: Callable[..., Processes], room: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the room is used up; a vector takes at least a page."""
    monkeypatch.setattr(processes, "ROOM", room)
    engine = started(plain, 2)
    for count in (5, 30, 300):
        assert collected(engine, count) == collected(Serial(makes(plain), LENGTH), count)
        assert len(engine._slots) == min(count, slots)


def test_unused_slots_take_no_memory(started: Callable[..., Processes]) -> None:
    engine = started(plain, 1)
    list(engine.run(jobs(100), torch.ones(LENGTH)))
    assert sum(bool(slot.any()) for slot in engine._slots) <= 3


def test_other_clients_continue_while_one_is_slow(started: Callable[..., Processes], tmp_path: Path) -> None:
    def first_is_last(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        (tmp_path / f"{job.client}").touch()
        end = time.monotonic() + 60
        while job.client == 0 and len(list(tmp_path.iterdir())) < 40:
            assert time.monotonic() < end
            time.sleep(0.01)
        return plain(job, message, out)

    assert collected(started(first_is_last), 40) == collected(Serial(makes(plain), LENGTH), 40)


def test_one_thread_and_one_process_each(started: Callable[..., Processes]) -> None:
    torch.set_num_threads(2)
    for engine in (started(plain, 2), Serial(makes(plain), LENGTH)):
        reports = [result.report for result in engine.run(jobs(8), torch.zeros(LENGTH))]
        assert {report["threads"] for report in reports} == {1}
        own = {report["pid"] for report in reports} == {os.getpid()}
        assert own == isinstance(engine, Serial)
    assert torch.get_num_threads() == 2


def test_sticky_clients_stay_with_their_worker(started: Callable[..., Processes]) -> None:
    engine = started(plain, 2, sticky=True)
    home: dict[int, set[int]] = {}
    for number in range(6):
        for result in engine.run(jobs(2, number), torch.zeros(LENGTH)):
            home.setdefault(result.job.client, set()).add(result.report["pid"])
    assert all(len(workers) == 1 for workers in home.values())


def test_values_for_one_client_alone(started: Callable[..., Processes]) -> None:
    def double(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        out[:2] *= 2
        return {}

    with_start = [Job(n, str(n), 0, torch.tensor([1.0, n])) for n in range(6)]
    for engine in (started(double), Serial(makes(double), LENGTH)):
        got = [result.vector[:2].tolist() for result in engine.run(with_start, torch.zeros(LENGTH))]
        assert got == [[2.0, 2.0 * n] for n in range(6)]


def test_a_failure_is_that_clients_alone(started: Callable[..., Processes]) -> None:
    def sometimes(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        if job.client == 2:
            error = LookupError("no such image: \N{SNOWMAN}")
            error.add_note("in batch 3")
            raise error
        return plain(job, message, out)

    for engine in (started(sometimes), Serial(makes(sometimes), LENGTH)):
        failures = [failure for _, _, failure in collected(engine, 5)]
        assert failures == [None, None, "LookupError: no such image: \N{SNOWMAN} (in batch 3)", None, None]


def test_work_that_cannot_be_made() -> None:
    def fail() -> Any:
        raise RuntimeError("the model cannot be copied")

    engine = Processes(fail, LENGTH, 2)
    try:
        assert [failure for _, _, failure in collected(engine, 3)] == [
            "RuntimeError: the model cannot be copied"
        ] * 3
    finally:
        engine.close()
    with pytest.raises(RuntimeError, match="cannot be copied"):
        Serial(fail, LENGTH)


@pytest.mark.parametrize("sticky", [False, True])
def test_a_killed_worker_is_replaced(
    started: Callable[..., Processes], sticky: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fatal_once(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        out.fill_(99)  # half done
        mark = tmp_path / f"{job.client}"
        if job.client in (1, 4) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(job, message, out)

    engine = started(fatal_once, 2, sticky=sticky)
    with caplog.at_level(logging.WARNING, "ttpfl"):
        assert collected(engine, 6) == collected(Serial(makes(plain), LENGTH), 6)
    assert len(caplog.records) == 2
    assert "SIGKILL" in caplog.text
    assert "client-1" in caplog.text
    assert "client-4" in caplog.text


def test_a_worker_killed_while_it_waits(
    started: Callable[..., Processes], caplog: pytest.LogCaptureFixture
) -> None:
    engine, expected = started(plain, 2), collected(Serial(makes(plain), LENGTH), 5)
    assert collected(engine, 5) == expected
    for pid in pids(engine):
        os.kill(pid, signal.SIGKILL)
    assert not wait_until_gone(pids(engine))
    assert collected(engine, 5) == expected


def test_a_killed_worker_whose_own_processes_live_on(
    started: Callable[..., Processes], tmp_path: Path
) -> None:
    """They inherit the connection and the sentinel that show its end."""
    note = tmp_path / "child"

    def fatal_once(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        if job.client == 1 and not note.exists():
            if (child := os.fork()) == 0:
                time.sleep(60)
                os._exit(0)
            note.write_text(f"{child}")
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(job, message, out)

    results = collected(started(fatal_once, 2), 5)
    child = int(note.read_text())
    assert alive(child)  # still running
    os.kill(child, signal.SIGKILL)
    assert results == collected(Serial(makes(plain), LENGTH), 5)


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_client_that_always_ends_its_worker(started: Callable[..., Processes], how: str) -> None:
    def fatal(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        if job.client == 3:
            if how == "exit":
                raise SystemExit(3)
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(job, message, out)

    engine = started(fatal)
    cause = "SIGKILL" if how == "kill" else "exit code 3"
    results = {result.job.client: result.failure for result in engine.run(jobs(6, 7), torch.ones(LENGTH))}
    assert re.match(rf"its worker process died twice \(.*{cause}\)", results.pop(3) or "")
    assert results == dict.fromkeys([0, 1, 2, 4, 5])  # no other client is affected
    assert len(collected(started(plain), 6, 7)) == 6


def test_a_stopped_worker_is_replaced(
    started: Callable[..., Processes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("TTPFL_STOPPED_WORKER_SECONDS", "1")

    def stops_once(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        if job.client == 3 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return plain(job, message, out)

    assert collected(started(stops_once), 6, 7) == collected(started(plain), 6, 7)
    assert "was stopped at client 'client-3' in round 7: it is replaced unless" in caplog.text
    assert "a worker died (signal SIGKILL) at client 'client-3' in round 7: it is replaced" in caplog.text


def test_a_worker_that_is_busy_for_long_is_not_taken_for_a_stopped_one(
    started: Callable[..., Processes], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setenv("TTPFL_STOPPED_WORKER_SECONDS", "1")

    def slow(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        time.sleep(4 if job.client == 1 else 0)
        return plain(job, message, out)

    assert len(collected(started(slow), 3, 0)) == 3
    assert not caplog.records


def test_a_stopped_process_of_a_pool_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTPFL_STOPPED_WORKER_SECONDS", "1")

    def work(number: int) -> int:
        if number == 5:
            os.kill(os.getpid(), signal.SIGSTOP)
        return number

    with pytest.raises(DataError, match="a worker process was killed or stopped"):
        list(in_order(work, 8, workers=2))
    assert not multiprocessing.active_children()


def test_workers_end_when_the_results_are_not_consumed(started: Callable[..., Processes]) -> None:
    def slow(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        time.sleep(600 if job.client else 0)
        return {}

    engine = started(slow, 3)
    results = engine.run(jobs(9), torch.zeros(LENGTH))
    next(results)
    workers = pids(engine)
    results.close()
    assert len(workers) == 3
    assert not wait_until_gone(workers)
    fresh = started(plain)
    assert len(collected(fresh, 3)) == 3  # and another engine works


def test_nothing_is_left_open() -> None:
    def once() -> None:
        engine = Processes(makes(plain), LENGTH, 2)
        collected(engine, 5)
        engine.close()

    def count() -> tuple[int, int]:
        gc.collect()
        maps = Path("/proc/self/maps").read_text().count("/dev/zero")
        return len(os.listdir("/proc/self/fd")), maps

    once()
    before = count()
    for _ in range(4):
        once()
    assert count() == before
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        states = [Path(f"/proc/{pid}/stat").read_text().split()[2] for pid in children.read_text().split()]
        assert "Z" not in states


def test_long_messages(started: Callable[..., Processes]) -> None:
    def wordy(job: Job, message: Tensor, out: Tensor) -> dict[str, Any]:
        return {"words": "x" * 3_000_000}

    results = started(wordy, 3).run(jobs(7), torch.zeros(LENGTH))
    assert [len(result.report["words"]) for result in results] == 7 * [3_000_000]


def test_empty_vector() -> None:
    engine = Processes(makes(lambda job, message, out: {}), 0, 1)
    assert [result.vector.numel() for result in engine.run(jobs(2), torch.zeros(0))] == [0, 0]
    engine.close()
