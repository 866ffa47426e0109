"""Tasks that Flower has for an app: a process of ours is started for each, and says how it ended."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.constant import TaskType
from flwr.supercore.exit import register_signal_handlers
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.telemetry import EventType

log = logging.getLogger("ttpfl")

POLL = 0.3  # seconds from one look for tasks to the next
SECRET_BYTES = 32
_TOKEN = "TTPFL_TASK_TOKEN"  # not an argument: those are shown to all users of a machine


def may_acquire(secret: bytes) -> list[ProtobufClientInterceptor]:
    """For the client that asks for tasks: only who has the secret gets any."""
    asks = SuperExecAuthHttpInterceptor(
        master_secret=secret, protected_methods={"/flwr.proto.Runtime/AcquireTask"}
    )
    return [RuntimeVersionHttpInterceptor(component_name="SuperExec"), asks]


def log_to_stderr() -> None:
    """Of a process that was started for a task: what it says, without a line for every request."""
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def may_work() -> list[ProtobufClientInterceptor]:
    """For the client of the process that was started for a task."""
    token = RuntimeTokenHttpInterceptor(os.environ.pop(_TOKEN))
    return [RuntimeVersionHttpInterceptor(component_name="ttpfl"), token]


def start_in_background(client: RuntimeHttpClient, module: str, *arguments: str) -> None:
    """Look for tasks as long as this process lives. If that fails it ends: a service starts it again."""

    def work() -> None:
        try:
            _start_processes(client, [sys.executable, "-m", module, *arguments])
        except Exception:
            log.exception("tasks cannot be fetched any more")
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=work, daemon=True, name="tasks").start()


def _start_processes(client: RuntimeHttpClient, command: Sequence[str]) -> None:
    """One for every task of whatever type: the process itself refuses what is not its app."""
    # Not only of the types that are expected: a task that nobody takes would hold up all that come after it.
    wanted = AcquireTaskRequest(supported_task_types=list(TaskType))
    children: list[subprocess.Popen[bytes]] = []
    while True:
        found = client.AcquireTask(wanted)
        if found.HasField("task") and found.token:
            given = {**os.environ, _TOKEN: found.token}
            children.append(subprocess.Popen(command, env=given, stdin=subprocess.DEVNULL))
        children = [child for child in children if child.poll() is None]
        time.sleep(POLL)


@contextmanager
def reported(client: RuntimeHttpClient, retry: RetryInvoker, leave: EventType) -> Iterator[None]:
    """Tell Flower that the task is alive and, once, how it ended: also if a signal ends it.

    Args:
        client: of this process.
        retry: how often the client repeats what fails.
        leave: Flower's name for the end of such a process.
    """
    ended = threading.Event()
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))

    def report(status: str = SubStatus.FAILED, details: str = "the process was ended") -> None:
        if ended.is_set():
            return
        ended.set()
        retry.max_tries = 1  # nobody shall wait for a process that ends
        try:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        except httpx.HTTPError as error:
            log.warning("the end of a task cannot be reported: %s", error)
        if heartbeat.is_running:
            heartbeat.stop()

    start_parent_process_monitor(os.getppid())
    register_signal_handlers(leave, "Task stopped.", exit_handlers=[report])
    heartbeat.start()
    try:
        yield
        report(SubStatus.COMPLETED, "")
    except Exception as error:
        log.exception("a task failed")
        report(SubStatus.FAILED, f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
    finally:
        client.close()
