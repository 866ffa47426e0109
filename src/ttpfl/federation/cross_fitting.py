"""Cross-fitting: models that have not seen a client's data, so that the client is like a new one to them."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ttpfl.errors import FederationError
from ttpfl.federation.common.client_pool import Clients
from ttpfl.federation.settings import TrainSettings
from ttpfl.federation.training import train
from ttpfl.util.settings_kit import integer


def train_unseen(
    model: nn.Module, clients: Clients, settings: TrainSettings | None = None, parts: int = 3
) -> list[nn.Module]:
    """Train `parts` models, each without one part of the clients, for `learn(..., unseen=...)`.

    Args:
        model: The model to start from, the same that the global model starts from; it is not changed.
        clients: The source clients.
        settings: The settings of training.
        parts: The number of models. Client i is not used for number i modulo `parts`.

    >>> import torch
    >>> from ttpfl.federation import LearnSettings, learn
    >>> clients = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(6)]
    >>> initial, how = nn.Linear(3, 2), TrainSettings(rounds=2, batch_size=4, workers=0)
    >>> model, unseen = train(initial, clients, how).model, train_unseen(initial, clients, how)
    >>> rates = learn(model, clients, LearnSettings(rounds=2, workers=0), unseen=unseen).rates
    """
    return [train(model, without(clients, part, parts), settings).model for part in range(parts)]


def without(clients: Clients, part: int, parts: int) -> Clients:
    """All clients except every `parts`-th, counted from `part`.

    >>> without("abcdef", 1, 3)
    ['a', 'c', 'd', 'f']
    """
    integer(2).check(FederationError, parts=parts)
    if parts > len(clients):
        raise FederationError(f"parts is {parts}, but there are only {len(clients)} clients: use fewer")
    if isinstance(clients, Mapping):
        return dict(_kept(list(clients.items()), part, parts))
    return _kept([clients[number] for number in range(len(clients))], part, parts)


def _kept(items: list[Any], part: int, parts: int) -> list[Any]:
    return [item for number, item in enumerate(items) if number % parts != part]
