"""What the server makes of the clients' models: sums over answers, one at a time, in double precision."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from ttpfl.errors import FederationError
from ttpfl.federation.common.state_vector import Layout
from ttpfl.util.settings_kit import NOT_NEGATIVE


@dataclass
class Sums:
    """What is kept of the answers so far: its size does not depend on how many there were."""

    vector: Tensor
    weight: float = 0.0
    other: float = 0.0


@dataclass(frozen=True)
class Reply:
    """A client's model after its training."""

    vector: Tensor
    samples: int
    loss_before: float
    """Loss of the global model on the client's data; asked for by `needs_loss_before`."""


class Algorithm(Protocol):
    """How clients' models become the next global model."""

    @property
    def proximal(self) -> float:
        """How strongly clients are pulled back to the global model."""

    @property
    def needs_loss_before(self) -> bool:
        """Whether clients have to look at the global model's loss first."""

    def add(self, sums: Sums, reply: Reply, current: Tensor, layout: Layout, lr: float) -> None:
        """Take one more answer into the sums."""

    def finish(self, sums: Sums, current: Tensor, layout: Layout) -> Tensor:
        """The next global model."""


@dataclass(frozen=True)
class FedAvg:
    """The mean of the clients' models, weighted by their numbers of samples (McMahan et al., 2017)."""

    needs_loss_before: ClassVar[bool] = False

    @property
    def proximal(self) -> float:
        """Clients are free."""
        return 0.0

    def add(self, sums: Sums, reply: Reply, current: Tensor, layout: Layout, lr: float) -> None:
        """Samples times model."""
        # Converted first: torch adds tensors of two types ten times more slowly.
        sums.vector.add_(reply.vector.double(), alpha=reply.samples)
        sums.weight += reply.samples

    def finish(self, sums: Sums, current: Tensor, layout: Layout) -> Tensor:
        """The weighted mean."""
        return (sums.vector / sums.weight).to(current.dtype)


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with clients that are pulled back to the global model with strength `mu` (Li et al., 2020)."""

    mu: float = 0.01

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check(FederationError, mu=self.mu)

    @property
    def proximal(self) -> float:
        """The strength of the pull."""
        return self.mu


@dataclass(frozen=True)
class QFFL:
    """q-FedAvg: clients with a larger loss count more, the more so the larger `q` (Li et al., 2020).

    With F the loss of the global model w on a client's data, and D = (w - w_client) / lr: the step is
    -sum(F^q D) / sum(q F^(q-1) |D|^2 + F^q / lr). Buffers have no gradient, so they become the mean
    with weights F^q.
    """

    q: float = 1.0
    proximal: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        NOT_NEGATIVE.check(FederationError, q=self.q)

    @property
    def needs_loss_before(self) -> bool:
        """With q = 0 all clients count the same."""
        return self.q != 0

    def add(self, sums: Sums, reply: Reply, current: Tensor, layout: Layout, lr: float) -> None:
        """Take one more answer into the sums: parameters as F^q D, buffers times F^q."""
        split = layout.buffers_from
        loss = max(reply.loss_before, 1e-10) if self.needs_loss_before else 1.0
        weight = loss**self.q
        pull = (current[:split].double() - reply.vector[:split]) / lr
        sums.vector[:split].add_(pull, alpha=weight)
        sums.vector[split:].add_(reply.vector[split:].double(), alpha=weight)
        sums.weight += weight
        sums.other += self.q * loss ** (self.q - 1) * float(pull.square().sum()) + weight / lr

    def finish(self, sums: Sums, current: Tensor, layout: Layout) -> Tensor:
        """The global model after the step."""
        split = layout.buffers_from
        parameters = current[:split].double() - sums.vector[:split] / sums.other
        buffers = sums.vector[split:] / sums.weight
        return torch.cat([parameters, buffers]).to(current.dtype)
