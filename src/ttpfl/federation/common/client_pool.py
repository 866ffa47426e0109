"""The clients of a run in any supported form: their names, sizes and data."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast, runtime_checkable

from ttpfl.core.inputs import Client, client_tensors, common_length
from ttpfl.errors import FederationError
from ttpfl.util.randomness import seeded

MOST_NAMES = 1000

Part = Literal["train", "validation"]


@runtime_checkable
class Site(Protocol):
    """A client that creates its data on demand, such as `ttpfl.data.SourceClient`."""

    id: str

    def size(self, part: Part) -> int:
        """Number of samples in a part of its data."""

    def train(self) -> Client:
        """Training data."""

    def validation(self) -> Client:
        """Held-out data to learn rates with."""


Clients = Sequence[Any] | Mapping[str, Any]
"""Sites, or data as `learn_rates` takes it: pairs of tensors, datasets or DataLoaders."""


class ClientPool:
    """Clients 0 to len - 1.

    Clients given as data instead of sites use this data both for training and for validation.

    >>> import torch
    >>> pool = ClientPool({"north": (torch.zeros(5, 2), torch.zeros(5))})
    >>> len(pool), pool.name(0), pool.size(0, "train")
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
        """Number of clients per round, checked; all if `size` is None."""
        size = len(self) if size is None else size
        if size > len(self):
            raise FederationError(f"cohort is {size}, but there are only {len(self)} clients")
        return size

    def _get(self, client: int) -> Any:
        return self._clients[client if self._names is None else self._names[client]]  # type: ignore[index]

    def name(self, client: int) -> str:
        """Name of a client; its number if it has none."""
        if self._names is not None:
            return str(self._names[client])
        entry = self._get(client)
        return str(entry.id) if isinstance(entry, Site) else str(client)

    @property
    def named(self) -> bool:
        """Whether clients have names, not only numbers."""
        return self._names is not None or isinstance(self._get(0), Site)

    def names_hash(self) -> str:
        """A hash of the clients' names: of all up to 1,000, otherwise of 1,000 evenly spaced ones.

        Clients may be created on access, and creating 100,000 of them would take too long.
        """
        last, count = len(self) - 1, min(len(self), MOST_NAMES) if self.named else 0
        names = [self.name(round(last * place / max(1, count - 1))) for place in range(count)]
        return hashlib.sha256(json.dumps(names).encode()).hexdigest()

    def size(self, client: int, part: Part) -> int:
        """Number of samples (batches for a DataLoader); 0 if unknown.

        Errors in a client's data are reported, with its name, when the client works.
        """
        entry = self._get(client)
        try:
            if isinstance(entry, Site):
                return int(entry.size(part))
            tensors = client_tensors(entry)
            return len(entry) if tensors is None else common_length(tensors)
        except Exception:
            return 0

    def data(self, client: int, part: Part, seed: tuple[int, ...]) -> Client:
        """The client's data; random numbers used to create it follow from `seed`."""
        with seeded(*seed):
            entry = self._get(client)
            if isinstance(entry, Site):
                return entry.train() if part == "train" else entry.validation()
            return cast(Client, entry)
