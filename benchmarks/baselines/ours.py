"""FedAvg with ttpfl's local engine: `--threads` worker processes with one thread each."""

from collections.abc import Callable

import torch
from torch import Tensor

import measure
import ttpfl
from ttpfl.federation import Callback, TrainSettings
from ttpfl.federation import train as federated
from workload import BATCH, Workload, averaged_state


class Lap(Callback):
    def __init__(self, lap: Callable[[], None]) -> None:
        self.lap = lap

    def on_round(self, state: object, record: object) -> None:
        self.lap()


def train(workload: Workload, rounds: int, lap: Callable[[], None]) -> dict[str, Tensor]:
    clients = [workload.client(index) for index in range(workload.clients)]
    # Like the other engines: no validation, and batches in their natural order.
    settings = TrainSettings(
        rounds=rounds,
        lr=workload.learning_rate,
        batch_size=BATCH,
        shuffle=False,
        validate_every=0,
        workers=torch.get_num_threads(),  # one thread each
    )
    trained = federated(workload.network(), clients, settings, callbacks=[Lap(lap)])
    return averaged_state(trained.model)


if __name__ == "__main__":
    measure.run("ttpfl", ttpfl.__version__, train, __doc__)
