"""Test-time personalised federated learning: one adaptation rate per module, for any PyTorch model.

>>> import torch, ttpfl
>>> _ = torch.manual_seed(0)
>>> model = ttpfl.models.shallow_cnn(num_classes=10)
>>> clients = [(torch.randn(40, 3, 32, 32), torch.randint(10, (40,))) for _ in range(3)]
>>> rates = ttpfl.learn_rates(model, clients, rounds=2, cohort=2, lr=0.1, batch_size=20)
>>> personal = ttpfl.Personalizer(model, rates, mode="online")
>>> personal(torch.randn(20, 3, 32, 32)).shape
torch.Size([20, 10])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ttpfl._version import __version__

if TYPE_CHECKING:
    from ttpfl._public import *
else:

    def __getattr__(name: str) -> Any:
        """Import the library when the first of its names is asked for: `ttpfl --help` asks for none."""
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        public = import_module("ttpfl._public")
        globals().update({known: getattr(public, known) for known in public.__all__})
        if name not in globals():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals()[name]


__all__ = [
    "BatchError",
    "DataError",
    "DirectionCache",
    "ModelError",
    "Personalizer",
    "Rates",
    "RatesError",
    "RatesFileError",
    "TtpflError",
    "__version__",
    "average_rates",
    "data",
    "federation",
    "learn_rates",
    "models",
    "refine_rates",
    "statistics_rule",
]
