"""Aggregation of the clients' models: running sums in double precision, one result at a time."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ttpfl.errors import FederationError
from ttpfl.federation.common.state_vector import Layout
from ttpfl.util.settings_kit import NOT_NEGATIVE


@dataclass
class Sums:
    """Running sums over results; their size does not depend on the number of clients."""

    vector: Tensor
    weight: float = 0.0
    denominator: float = 0.0
    """Of the step; only q-FedAvg uses it."""


@dataclass(frozen=True)
class Reply:
    """A client's model after local training."""

    vector: Tensor
    samples: int
    loss_before: float
    """Loss of the global model on the client's data, if `needs_loss_before`."""


class Algorithm(ABC):
    """Turns the clients' models into the next global model."""

    @property
    def proximal(self) -> float:
        """Weight of the clients' proximal term."""
        return 0.0

    @property
    def needs_loss_before(self) -> bool:
        """Whether clients must first compute the global model's loss."""
        return False

    @abstractmethod
    def add(self, sums: Sums, reply: Reply, current: Tensor, layout: Layout, lr: float) -> None:
        """Add a client's model to the sums."""

    @abstractmethod
    def finish(self, sums: Sums, current: Tensor, layout: Layout) -> Tensor:
        """The next global model."""


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """The mean of the clients' models, weighted by their numbers of samples (McMahan et al., 2017)."""

    def add(self, sums: Sums, reply: Reply, current: Tensor, layout: Layout, lr: float) -> None:
        """Add the model times its number of samples."""
        # Converted first: torch adds tensors of different types ten times more slowly.
        sums.vector.add_(reply.vector.double(), alpha=reply.samples)
        sums.weight += reply.samples

    def finish(self, sums: Sums, current: Tensor, layout: Layout) -> Tensor:
        """The weighted mean."""
        return (sums.vector / sums.weight).to(current.dtype)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term of weight `mu` in the clients' loss (Li et al., 2020)."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check(FederationError, mu=self.mu)

    @property
    def proximal(self) -> float:
        """The weight `mu`."""
        return self.mu


@dataclass(frozen=True)
class QFFL(Algorithm):
    """q-FedAvg: a larger `q` gives clients with a larger loss more weight (Li et al., 2020).

    With F the loss of the global model w on a client's data, and D = (w - w_client) / lr: the step is
    -sum(F^q D) / sum(q F^(q-1) |D|^2 + F^q / lr). Buffers have no gradient, so they become the mean
    with weights F^q.
    """

    q: float = 1.0

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check(FederationError, q=self.q)

    @property
    def needs_loss_before(self) -> bool:
        """With q = 0 all clients have the same weight, so no loss is needed."""
        return self.q != 0

    def add(self, sums: Sums, reply: Reply, current: Tensor, layout: Layout, lr: float) -> None:
        """Add F^q D for parameters, and F^q times the buffers."""
        split = layout.buffers_from
        loss = max(reply.loss_before, 1e-10) if self.needs_loss_before else 1.0
        weight = loss**self.q
        change = (current[:split].double() - reply.vector[:split]) / lr
        sums.vector[:split].add_(change, alpha=weight)
        sums.vector[split:].add_(reply.vector[split:].double(), alpha=weight)
        sums.weight += weight
        sums.denominator += self.q * loss ** (self.q - 1) * float(change.square().sum()) + weight / lr

    def finish(self, sums: Sums, current: Tensor, layout: Layout) -> Tensor:
        """The global model after the step."""
        split = layout.buffers_from
        parameters = current[:split].double() - sums.vector[:split] / sums.denominator
        buffers = sums.vector[split:] / sums.weight
        return torch.cat([parameters, buffers]).to(current.dtype)
