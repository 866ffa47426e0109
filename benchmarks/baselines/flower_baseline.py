"""FedAvg with Flower's simulation on Ray: `--threads` virtual clients at a time, one thread each.

Each client's data is in its own file, which is read (from the page cache) every round. That takes less than
1 % of the client's time.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # set before the imports

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from safetensors.torch import save_file
from torch import Tensor

import flower_client
import measure
from workload import Workload, averaged_state


def train(workload: Workload, rounds: int, lap: Callable[[], None]) -> dict[str, Tensor]:
    # Ray's processes may still be writing logs when the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["FLWR_HOME"] = folder  # keep Flower's files out of the user's home
        for index in range(workload.clients):
            images, labels = workload.client(index)
            save_file({"images": images, "labels": labels}, Path(folder, f"{index}.safetensors"))
        return simulate(workload, rounds, lap, folder)


def simulate(workload: Workload, rounds: int, lap: Callable[[], None], folder: str) -> dict[str, Tensor]:
    server = ServerApp()
    final: dict[str, Tensor] = {}

    def evaluate(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:  # round 0 is the initial evaluation
            lap()

    def everybody(replies: list[RecordDict], weight: str) -> MetricRecord:
        # Flower would continue without failed clients, and look faster for it.
        if len(replies) != workload.clients:
            raise RuntimeError(f"{workload.clients - len(replies)} of {workload.clients} clients failed")
        return MetricRecord()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_evaluate=0.0, min_available_nodes=workload.clients, train_metrics_aggr_fn=everybody
        )
        result = strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(averaged_state(workload.network())),
            num_rounds=rounds,
            train_config=ConfigRecord({**asdict(workload), "folder": folder}),
            evaluate_fn=evaluate,
        )
        final.update(result.arrays.to_torch_state_dict())

    run_simulation(
        server_app=server,
        client_app=flower_client.app,
        num_supernodes=workload.clients,
        backend_config={
            "init_args": {
                "num_cpus": torch.get_num_threads(),
                "log_to_driver": False,
                "_temp_dir": folder,
            },
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return final


if __name__ == "__main__":
    measure.run("Flower", version("flwr"), train, __doc__)
