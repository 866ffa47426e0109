"""Local training: epochs of SGD on a client's data, starting from the global model."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset

from ttpfl.core.direction import one_number
from ttpfl.core.inputs import (
    Client,
    Inputs,
    checked,
    client_batches,
    client_tensors,
    common_length,
    map_tensors,
    split_batch,
)
from ttpfl.core.learning import Loss, cross_entropy
from ttpfl.core.metric_sums import MetricSums
from ttpfl.core.outputs import Readout
from ttpfl.core.runner import Runner
from ttpfl.core.twin import isolated
from ttpfl.errors import BatchError
from ttpfl.federation.clients.survey import Survey
from ttpfl.federation.common.state_vector import unpack
from ttpfl.federation.settings import TrainSettings
from ttpfl.util.randomness import seeded
from ttpfl.util.sgd import SGD


class LocalTrainer:
    """Keeps a model and trains it in place, for one client after the other.

    `proximal` is the weight of FedProx's proximal term.

    >>> trainer = LocalTrainer(nn.Linear(2, 2), TrainSettings(batch_size=4))
    >>> trainer.train((torch.zeros(8, 2), torch.zeros(8, dtype=torch.long)), seed=(0,)).samples
    8
    """

    def __init__(
        self,
        model: nn.Module,
        settings: TrainSettings,
        proximal: float = 0.0,
        loss: Loss = cross_entropy,
        logits: Readout | None = None,
    ) -> None:
        self.model, self._settings, self._proximal = model, settings, proximal
        self.seen = 0
        """Samples of the last training over all epochs, including batches that were left out: a client's
        weight is the size of its data, which a DataLoader only shows during use."""
        self._loss, self._runner = loss, Runner(model, logits)
        self._has_batchnorm = any(
            isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in model.modules()
        )
        self._integer_buffers = {
            name: buffer.clone() for name, buffer in model.named_buffers() if not buffer.is_floating_point()
        }

    def load(self, vector: Tensor) -> None:
        """Set the model's state. Tensors that are not in the vector get their initial values back."""
        unpack(vector, self.model)
        buffers = dict(self.model.named_buffers())
        for name, initial in self._integer_buffers.items():
            buffers[name].copy_(initial)

    def train(self, client: Client, seed: tuple[int, ...]) -> MetricSums:
        """Train on the client's data; random numbers follow from `seed`."""
        with seeded(*seed, client=client), isolated():
            return self._train(client)

    def _train(self, client: Client) -> MetricSums:
        settings, metrics, self.seen = self._settings, MetricSums(), 0
        self.model.train()
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        anchors = [p.detach().clone() for p in parameters] if self._proximal else []
        sgd = SGD(parameters, settings.lr, settings.momentum, settings.weight_decay)
        for _ in range(settings.local_epochs):
            for inputs, labels in self._epoch(client):
                self.model.zero_grad()
                logits = self._forward(inputs)
                loss = one_number("loss", self._loss(logits, labels))
                loss.backward()
                for parameter, anchor in zip(parameters, anchors, strict=False):  # FedProx only
                    if parameter.grad is not None:
                        parameter.grad.add_(parameter.detach() - anchor, alpha=self._proximal)
                sgd.step([parameter.grad for parameter in parameters])
                metrics.add(logits.detach(), labels, loss.detach())
        self.model.zero_grad()
        if not metrics.samples:
            raise BatchError("the client has no data: leave it out")
        return metrics

    def evaluate(self, client: Client, seed: tuple[int, ...]) -> Survey:
        """Evaluate the model on the client's data; random numbers follow from `seed`."""
        survey = Survey()
        self.model.eval()
        with seeded(*seed, client=client), torch.no_grad():
            for batch in client_batches(client, self._settings.batch_size):
                inputs, labels = split_batch(batch)
                logits = self._forward(checked(inputs))
                survey.add(logits, labels, one_number("loss", self._loss(logits, labels)))
        return survey

    def _epoch(self, client: Client) -> Iterator[tuple[Inputs, Tensor]]:
        """All batches. With BatchNorm, an incomplete one is left out unless it is the only one."""
        size, first = self._settings.batch_size, True
        complete = client.batch_size or 0 if isinstance(client, DataLoader) else size
        for batch in client_batches(shuffled(client) if self._settings.shuffle else client, size):
            inputs, labels = split_batch(batch)
            self.seen += len(labels)
            if first or len(labels) >= complete or not self._has_batchnorm:
                yield checked(inputs), labels
            first = False

    def _forward(self, inputs: Inputs) -> Tensor:
        fast = self._settings.fast and self._runner.takes_channels_last(inputs)
        return self._runner.fast(inputs) if fast else self._runner.plain(inputs)


def shuffled(client: Client) -> Client:
    """The samples in random order; a DataLoader is returned as it is.

    >>> _ = torch.manual_seed(0)
    >>> shuffled((torch.arange(4), torch.arange(4)))
    (tensor([0, 1, 3, 2]), tensor([0, 1, 3, 2]))
    """
    if isinstance(client, DataLoader):
        return client
    tensors = client_tensors(client)
    if tensors is not None:
        order = torch.randperm(common_length(tensors))
        mixed: Client = map_tensors(lambda tensor: tensor[order], tensors)
        return mixed
    return Subset(client, torch.randperm(len(client)).tolist())  # type: ignore[arg-type]
