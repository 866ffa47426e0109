"""What makes a run what it is, in a form that is the same in every process."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ttpfl.federation.common.client_pool import ClientPool
from ttpfl.federation.settings import with_new_names

LIBRARY = __name__.partition(".")[0]
FUNCTIONS = ("objective", "loss", "logits")
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
        "client_names": client_pool.names_hash(),
        **{what: function_name(function) for what, function in functions.items()},
        "torch": torch.__version__,
    }


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

    >>> as_of_now({"epochs": 2, "objective": "ttpfl.direction.entropy", "loss": "own.losses.focal"})
    {'local_epochs': 2, 'objective': 'ttpfl.entropy', 'loss': 'own.losses.focal'}
    """
    found = with_new_names(identity)
    names = {what: found[what] for what in FUNCTIONS if isinstance(found.get(what), str)}
    return found | {what: _without_module(name) for what, name in names.items()}
