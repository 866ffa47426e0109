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

from ttpfl._version import __version__
from ttpfl.lazy import attributes

if TYPE_CHECKING:
    from ttpfl import data, federation, models
    from ttpfl.direction import DirectionCache
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
    from ttpfl.federation.rate_average import average_rates
    from ttpfl.learning import refine_rates
    from ttpfl.personalizer import Personalizer
    from ttpfl.rate_rounds import learn_rates
    from ttpfl.rates import Rates
    from ttpfl.statistics import statistics_rule

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
        "DirectionCache": "direction",
        "Personalizer": "personalizer",
        "Rates": "rates",
        "average_rates": "federation.rate_average",
        "data": "data",
        "federation": "federation",
        "learn_rates": "rate_rounds",
        "models": "models",
        "refine_rates": "learning",
        "statistics_rule": "statistics",
    },
)
