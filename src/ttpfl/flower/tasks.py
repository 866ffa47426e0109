"""Tasks that Flower has for an app: each gets a process of ttpfl, which reports how the task ended."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest
from flwr.supercore import interceptors
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.constant import TaskType
from flwr.supercore.exit import register_signal_handlers
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.retry import RetryInvoker, make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.telemetry import EventType

from ttpfl.flower.over_socket import client_over

log = logging.getLogger("ttpfl")

POLL = 0.3  # seconds between requests for tasks
SECRET_BYTES = 32
_TOKEN = "TTPFL_TASK_TOKEN"  # not an argument: every user of the machine can see those


def start_in_background(path: Path, secret: bytes, module: str, argument: str) -> None:
    """Run a process for every task while this process lives. If that fails, end: a service restarts it.

    Args:
        path: Socket of Flower's runtime API.
        secret: Flower hands out tasks only to clients that have it.
        module: Module to run.
        argument: Its argument.
    """
    version = interceptors.RuntimeVersionHttpInterceptor(component_name="SuperExec")
    authentication = interceptors.SuperExecAuthHttpInterceptor(
        master_secret=secret, protected_methods={"/flwr.proto.Runtime/AcquireTask"}
    )
    retry = make_simple_http_retry_invoker()
    client = client_over(RuntimeHttpClient, path, [version, authentication], retry)

    def work() -> None:
        try:
            _start_processes(client, [sys.executable, "-m", module, argument])
        except Exception:
            log.exception("cannot fetch tasks any more")
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=work, daemon=True, name="tasks").start()


def _start_processes(client: RuntimeHttpClient, command: Sequence[str]) -> None:
    """Start one for every task of any type: the process itself refuses other apps."""
    # Not only the expected types: a task that nobody takes would block all that come after it.
    request = AcquireTaskRequest(supported_task_types=list(TaskType))
    children: list[subprocess.Popen[bytes]] = []
    while True:
        response = client.AcquireTask(request)
        if response.HasField("task") and response.token:
            environment = {**os.environ, _TOKEN: response.token}
            children.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        children = [child for child in children if child.poll() is None]
        time.sleep(POLL)


@contextmanager
def task_client(path: Path, leave: EventType) -> Iterator[tuple[RuntimeHttpClient, RetryInvoker]]:
    """Connect a process that was started for a task, and report once how the task ends, even by a signal.

    Args:
        path: Socket of Flower's runtime API.
        leave: Flower's name for the end of such a process.
    """
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # no line for every request
    version = interceptors.RuntimeVersionHttpInterceptor(component_name="ttpfl")
    retry = make_simple_http_retry_invoker()
    token = interceptors.RuntimeTokenHttpInterceptor(os.environ.pop(_TOKEN))
    client = client_over(RuntimeHttpClient, path, [version, token], retry)
    ended, heartbeat = threading.Event(), HeartbeatSender(make_task_heartbeat_fn_http(client))

    def report(status: str = SubStatus.FAILED, details: str = "the process was ended") -> None:
        if ended.is_set():
            return
        ended.set()
        retry.max_tries = 1  # a process that ends must not keep others waiting
        try:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
        except httpx.HTTPError as error:
            log.warning("cannot report the end of a task: %s", error)
        if heartbeat.is_running:
            heartbeat.stop()

    start_parent_process_monitor(os.getppid())
    register_signal_handlers(leave, "Task stopped.", exit_handlers=[report])
    heartbeat.start()
    try:
        yield client, retry
        report(SubStatus.COMPLETED, "")
    except Exception as error:
        log.exception("a task failed")
        report(SubStatus.FAILED, f"{type(error).__name__}: {error}")
        raise SystemExit(1) from None
    finally:
        client.close()
