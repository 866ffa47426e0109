"""The clients of a run, whatever they are given as: names, sizes, and data when it is needed."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from ttpfl.core.inputs import Client, client_tensors, common_length
from ttpfl.errors import FederationError
from ttpfl.util.randomness import seeded

MOST_NAMES = 1000

Part = Literal["train", "validation"]


@runtime_checkable
class Site(Protocol):
    """A client that makes its data when it is asked for, such as `ttpfl.data.SourceClient`."""

    id: str

    def size(self, part: Part) -> int:
        """Samples in a part of its data."""

    def train(self) -> Client:
        """The data to train with."""

    def validation(self) -> Client:
        """The data held back, to learn rates with."""


Clients = Sequence[Any] | Mapping[str, Any]
"""Sites, or data as `learn_rates` takes it: pairs of tensors, datasets or DataLoaders."""


class ClientPool:
    """Clients 0 to len - 1.

    Clients that are data, and not sites, have this data as their training and their validation part.

    >>> import torch
    >>> client_pool = ClientPool({"north": (torch.zeros(5, 2), torch.zeros(5))})
    >>> len(client_pool), client_pool.name(0), client_pool.size(0, "train")
    (1, 'north', 5)
    """

    def __init__(self, clients: Clients) -> None:
        self._names = list(clients) if isinstance(clients, Mapping) else None
        self._clients = clients
        if not len(clients):
            raise FederationError("no clients: pass at least one")

    def __len__(self) -> int:
        return len(self._clients)

    def cohort(self, size: int | None) -> int:
        """Clients in a round, checked; all, if None."""
        size = len(self) if size is None else size
        if size > len(self):
            raise FederationError(f"cohort is {size}, but there are only {len(self)} clients")
        return size

    def _get(self, client: int) -> Any:
        return self._clients[client if self._names is None else self._names[client]]  # type: ignore[index]

    def name(self, client: int) -> str:
        """What the client is called."""
        if self._names is not None:
            return str(self._names[client])
        found = self._get(client)
        return str(found.id) if isinstance(found, Site) else str(client)

    @property
    def named(self) -> bool:
        """Whether clients have names of their own, and not just numbers."""
        return self._names is not None or isinstance(self._get(0), Site)

    def names_hash(self) -> str:
        """A hash of the clients' names: of all up to 1,000, else of 1,000 evenly spaced ones.

        Clients may be created on access, and creating 100,000 of them would take too long.
        """
        last, count = len(self) - 1, min(len(self), MOST_NAMES) if self.named else 0
        names = [self.name(round(last * place / max(1, count - 1))) for place in range(count)]
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def size(self, client: int, part: Part) -> int:
        """Samples of the client (batches, if it is a DataLoader); 0 if it cannot tell.

        Whatever is wrong with its data is found, and said with its name, when it works.
        """
        found = self._get(client)
        try:
            if isinstance(found, Site):
                return int(found.size(part))
            tensors = client_tensors(found)
            return len(found) if tensors is None else common_length(tensors)
        except Exception:
            return 0

    def data(self, client: int, part: Part, seed: tuple[int, ...]) -> Client:
        """The client's data; if it is made with random numbers, they follow from `seed`."""
        with seeded(*seed):
            found = self._get(client)
            if not isinstance(found, Site):
                data: Client = found
                return data
            return found.train() if part == "train" else found.validation()
