"""FedAvg with pfl-research in one process, set up as in its guides, without privacy.

By default, pfl transfers parameters only: it neither resets BatchNorm's running statistics between clients
nor averages them. Here they are added to the transferred tensors, so that all engines compute the same.
Training does not read running statistics, so the parameters are the same either way.
"""

from collections.abc import Callable
from importlib.metadata import version

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor

import measure
from workload import BATCH, Workload, averaged_state


class Lap(TrainingProcessCallback):
    """Call a function after each round."""

    def __init__(self, lap: Callable[[], None]) -> None:
        self.lap = lap

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        self.lap()
        return False, Metrics()


def pfl_model(workload: Workload) -> PyTorchModel:
    network = workload.network()
    network.loss = lambda images, labels: F.cross_entropy(network(images), labels)
    # pfl requires metrics in the first round; these cost nothing.
    network.metrics = lambda images, labels: {"samples": Weighted.from_unweighted(len(labels))}
    statistics = {name: t for name, t in network.named_buffers() if t.is_floating_point()}
    # The server applies the mean update as a gradient, with learning rate 1.
    server = torch.optim.SGD([*network.parameters(), *statistics.values()], lr=1.0)
    model = PyTorchModel(network, torch.optim.SGD, server)
    model.variable_map.update(statistics)
    return model


def train(workload: Workload, rounds: int, lap: Callable[[], None]) -> dict[str, Tensor]:
    users = [PyTorchTensorDataset(workload.client(index)) for index in range(workload.clients)]
    # Without reuse, a cohort the size of the population is every user once, in order.
    everybody = get_user_sampler("minimize_reuse", range(workload.clients))
    data = FederatedDataset(users.__getitem__, everybody)
    model = FederatedAveraging().run(
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model=pfl_model(workload),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=workload.clients,
            val_cohort_size=None,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=workload.learning_rate, local_batch_size=BATCH
        ),
        callbacks=[Lap(lap)],
        send_metrics_to_platform=False,
    )
    return averaged_state(model.pytorch_model)


if __name__ == "__main__":
    measure.run("pfl", version("pfl"), train, __doc__)
