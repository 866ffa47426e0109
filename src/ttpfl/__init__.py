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

from typing import TYPE_CHECKING

from ttpfl._moved import redirect_old_imports
from ttpfl._version import __version__
from ttpfl.util.lazy import attributes

if TYPE_CHECKING:
    from ttpfl import data, federation, models
    from ttpfl.core.direction_cache import DirectionCache
    from ttpfl.core.learning import refine_rates
    from ttpfl.core.personalizer import Personalizer
    from ttpfl.core.rates import Rates
    from ttpfl.core.statistics import statistics_rule
    from ttpfl.errors import (
        BatchError,
        DataError,
        DivergenceWarning,
        FederationError,
        ModelError,
        ModelWarning,
        RatesError,
        RatesFileError,
        RatesWarning,
        TtpflError,
        TtpflWarning,
    )
    from ttpfl.federation.learn_rates import learn_rates
    from ttpfl.federation.server.rate_average import average_rates

__all__ = [
    "BatchError",
    "DataError",
    "DirectionCache",
    "DivergenceWarning",
    "FederationError",
    "ModelError",
    "ModelWarning",
    "Personalizer",
    "Rates",
    "RatesError",
    "RatesFileError",
    "RatesWarning",
    "TtpflError",
    "TtpflWarning",
    "__version__",
    "average_rates",
    "data",
    "federation",
    "learn_rates",
    "models",
    "refine_rates",
    "statistics_rule",
]

__getattr__ = attributes(
    __name__,
    {
        **{name: "errors" for name in __all__ if name.endswith(("Error", "Warning"))},
        "DirectionCache": "core.direction_cache",
        "Personalizer": "core.personalizer",
        "Rates": "core.rates",
        "average_rates": "federation.server.rate_average",
        "data": "data",
        "federation": "federation",
        "learn_rates": "federation.learn_rates",
        "models": "models",
        "refine_rates": "core.learning",
        "statistics_rule": "core.statistics",
    },
)

redirect_old_imports()
