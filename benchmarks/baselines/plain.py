"""FedAvg as a plain loop: one process, one network, sums in float64."""

from collections.abc import Callable

import torch
from torch import Tensor

import measure
from workload import Workload, averaged_state, train_epoch


def train(workload: Workload, rounds: int, lap: Callable[[], None]) -> dict[str, Tensor]:
    clients = [workload.client(index) for index in range(workload.clients)]
    total = sum(len(labels) for _, labels in clients)
    network = workload.network()
    local = averaged_state(network)
    weights = {name: t.clone() for name, t in local.items()}
    for _ in range(rounds):
        sums = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in weights.items()}
        for images, labels in clients:
            network.load_state_dict(weights, strict=False)
            train_epoch(network, images, labels, workload.learning_rate)
            for name, t in local.items():
                sums[name].add_(t, alpha=len(labels))
        weights = {name: (t / total).to(workload.dtype) for name, t in sums.items()}
        lap()
    return weights


if __name__ == "__main__":
    measure.run("plain PyTorch", torch.__version__, train, __doc__)
