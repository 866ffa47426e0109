"""What makes a run what it is, in a form that is the same in every process."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ttpfl.federation.engine.client_pool import ClientPool
from ttpfl.federation.settings import with_new_names

LIBRARY = __name__.partition(".")[0]
FUNCTIONS = ("objective", "loss", "logits")
MOST_NAMES = 1000
DIFFERENCE_IS_A_RISK = ("torch",)
"""Where a difference may change bits, but does not make another run."""


def common(client_pool: ClientPool, **functions: Callable[..., Any] | None) -> dict[str, Any]:
    """The part that all kinds of runs share: the clients, the functions, and who computes.

    >>> from torch.nn.functional import relu
    >>> found = common(ClientPool({"north": ()}), loss=relu, logits=None)
    >>> found["clients"], found["loss"], found["logits"]
    (1, 'torch.nn.functional.relu', None)
    """
    return {
        "clients": len(client_pool),
        "client_names": names_hash(client_pool),
        **{what: function_name(function) for what, function in functions.items()},
        "torch": torch.__version__,
    }


def names_hash(client_pool: ClientPool) -> str:
    """A hash over the clients' names: all of up to 1,000, else of 1,000 from the first to the last, evenly.

    Clients may be made when they are asked for, and to make 100,000 of them would take too long.
    """
    last, count = len(client_pool) - 1, min(len(client_pool), MOST_NAMES) if client_pool.named else 0
    names = [client_pool.name(round(last * place / max(1, count - 1))) for place in range(count)]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def function_name(function: Callable[..., Any] | None) -> str | None:
    """A name that is the same in every process, so without the function's address.

    Functions of this library are named without their module, which may be another one in later versions.

    >>> function_name(partial(print, end="")), function_name(function_name)
    ('builtins.print', 'ttpfl.function_name')
    """
    while isinstance(function, partial):
        function = function.func
    if function is None:
        return None
    named = function if hasattr(function, "__qualname__") else type(function)
    return _without_module(f"{named.__module__}.{named.__qualname__}")


def _without_module(name: str) -> str:
    return f"{LIBRARY}.{name.rpartition('.')[2]}" if name.startswith(f"{LIBRARY}.") else name


def as_of_now(identity: dict[str, Any]) -> dict[str, Any]:
    """An identity that an earlier version wrote, as this version would write it.

    >>> as_of_now({"epochs": 2, "objective": "ttpfl.core.direction.entropy", "loss": "own.losses.focal"})
    {'local_epochs': 2, 'objective': 'ttpfl.entropy', 'loss': 'own.losses.focal'}
    """
    found = with_new_names(identity)
    names = {what: found[what] for what in FUNCTIONS if isinstance(found.get(what), str)}
    return found | {what: _without_module(name) for what, name in names.items()}
