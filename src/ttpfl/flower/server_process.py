"""The process of one run at the server: `python -m ttpfl.flower.server_process FEDERATION`.

The archive that came with the run is only hashed; `server_app` of the installed ttpfl does the work.
"""

import sys
from pathlib import Path

from flwr.common.serde import fab_from_proto, run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.supercore.task_identity import TaskIdentity
from flwr.supercore.telemetry import EventType
from flwr.superlink.grid import HttpGrid

from ttpfl.flower.bundle import check_app
from ttpfl.flower.folder import Federation
from ttpfl.flower.identity import read_identities
from ttpfl.flower.server_app import main as carry_out
from ttpfl.flower.tasks import task_client


def main(home: str) -> None:
    """Fetch the run from the superlink, and carry out its run spec."""
    federation = Federation.read(Path(home))
    with task_client(federation.control, EventType.FLWR_SERVERAPP_RUN_LEAVE) as (client, retry):
        task = client.PullTaskInput(PullTaskInputRequest())
        check_app(fab_from_proto(task.fab).content)
        run = run_from_proto(task.run)
        # Flower signs the messages of this process with these.
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid = HttpGrid("superlink", insecure=True, token="of the client")
        grid._client, grid._retry_invoker = client, retry
        grid.set_run(run)
        spec, token = (str(run.override_config[name]) for name in ("order", "token"))
        carry_out(grid, Path(spec), token, read_identities(federation.home))


if __name__ == "__main__":
    main(*sys.argv[1:])
