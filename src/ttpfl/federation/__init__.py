"""Model training and rate learning over clients, on all cores of a machine and resumable bit for bit."""

from typing import TYPE_CHECKING

from ttpfl.util.lazy import attributes

if TYPE_CHECKING:
    from ttpfl.federation.checkpoints.callbacks import Callback
    from ttpfl.federation.checkpoints.progress import Metrics
    from ttpfl.federation.cross_fitting import train_unseen
    from ttpfl.federation.privacy.composition import epsilon_of_rates
    from ttpfl.federation.rate_learning import learn
    from ttpfl.federation.settings import LearnSettings, TrainSettings
    from ttpfl.federation.training import train

__all__ = [
    "Callback",
    "LearnSettings",
    "Metrics",
    "TrainSettings",
    "epsilon_of_rates",
    "learn",
    "train",
    "train_unseen",
]

__getattr__ = attributes(
    __name__,
    {
        "Callback": "checkpoints.callbacks",
        "LearnSettings": "settings",
        "Metrics": "checkpoints.progress",
        "TrainSettings": "settings",
        "epsilon_of_rates": "privacy.composition",
        "learn": "rate_learning",
        "train": "training",
        "train_unseen": "cross_fitting",
    },
)
