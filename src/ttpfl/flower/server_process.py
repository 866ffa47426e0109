"""One run at the server, in a process of its own: `python -m ttpfl.flower.server_process FEDERATION`.

The archive that came with the run is only hashed. What works is `server_app` of the installed ttpfl.
"""

import sys
from pathlib import Path

from flwr.common.serde import fab_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.telemetry import EventType
from flwr.superlink.grid import HttpGrid

from ttpfl.flower.bundle import check_app
from ttpfl.flower.folder import Federation
from ttpfl.flower.identity import read_identities
from ttpfl.flower.over_socket import client_over
from ttpfl.flower.server_app import main as carry_out
from ttpfl.flower.tasks import log_to_stderr, may_work, reported


def main(home: str) -> None:
    """Fetch the run from the superlink, and carry out its order."""
    log_to_stderr()
    federation, retry = Federation.read(Path(home)), make_simple_http_retry_invoker()
    client = client_over(RuntimeHttpClient, federation.control, may_work(), retry)
    with reported(client, retry, EventType.FLWR_SERVERAPP_RUN_LEAVE):
        given = client.PullTaskInput(PullTaskInputRequest())
        check_app(fab_from_proto(given.fab).content)
        run = run_from_proto(given.run)
        # What this process sends is signed with these.
        TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, run.run_id
        TaskIdentity.node_id = given.context.node_id
        grid = HttpGrid("superlink", insecure=True, token="of the client")
        grid._client, grid._retry_invoker = client, retry
        grid.set_run(run)
        spec, token = (str(run.override_config[name]) for name in ("order", "token"))
        carry_out(grid, Path(spec), token, read_identities(federation.home))


if __name__ == "__main__":
    main(*sys.argv[1:])
