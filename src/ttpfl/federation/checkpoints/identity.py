"""The identity of a run: everything its result depends on, in a form that is the same in every process."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.settings import SGD, with_new_names

LIBRARY = __name__.partition(".")[0]
FUNCTIONS = ("objective", "loss", "logits")
MAY_DIFFER = ("torch",)
"""Keys that may change bits, but can differ when a run is resumed."""


def common(pool: ClientPool, **functions: Callable[..., Any] | None) -> dict[str, Any]:
    """The part that training and rate learning share: clients, functions and the version of torch.

    >>> from torch.nn.functional import relu
    >>> identity = common(ClientPool({"north": ()}), loss=relu, logits=None)
    >>> identity["clients"], identity["loss"], identity["logits"]
    (1, 'torch.nn.functional.relu', None)
    """
    return {
        "clients": len(pool),
        "client_names": pool.names_hash(),
        **{key: function_name(function) for key, function in functions.items()},
        "torch": torch.__version__,
    }


def function_name(function: Callable[..., Any] | None) -> str | None:
    """A name that is the same in every process, so without the function's address.

    Names of this library's functions omit the module, which may change between versions.

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


def upgraded(identity: dict[str, Any]) -> dict[str, Any]:
    """An identity written by an earlier version, in the form of this version.

    >>> upgraded({"epochs": 2, "objective": "ttpfl.direction.entropy", "loss": "own.losses.focal"})
    {'local_epochs': 2, 'objective': 'ttpfl.entropy', 'loss': 'own.losses.focal'}
    """
    named = with_new_names(identity)
    if named.get("kind") == "learn":  # of a version without these settings
        named = {"optimizer": SGD, "prior": False, "budget": None, "guard": False, **named}
    return {
        key: _without_module(value) if key in FUNCTIONS and isinstance(value, str) else value
        for key, value in named.items()
    }
