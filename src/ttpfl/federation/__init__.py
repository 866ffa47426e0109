"""Global training and rate learning over clients: fast on one machine, and resumable to the bit."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttpfl.federation.callbacks import Callback as Callback
    from ttpfl.federation.rate_learning import learn as learn
    from ttpfl.federation.settings import LearnSettings as LearnSettings
    from ttpfl.federation.settings import TrainSettings as TrainSettings
    from ttpfl.federation.training import train as train

__all__ = ["Callback", "LearnSettings", "TrainSettings", "learn", "train"]

_HOMES = {
    "Callback": "callbacks",
    "LearnSettings": "settings",
    "TrainSettings": "settings",
    "learn": "rate_learning",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: the command line reads the settings without waiting for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ttpfl.federation.{_HOMES[name]}"), name)
