"""One step in chosen modules: what ATP is before anything is learned."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast, get_args

import torch
from torch import nn

from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Mode, Rates
from ttpfl.errors import MethodError
from ttpfl.methods.atp import Personalized
from ttpfl.methods.base import Adapter, Method, SourceInfo, method, tunable
from ttpfl.util.settings_kit import NUMBER, STRING, one_of


@method("fixed-rates")
@dataclass(frozen=True)
class FixedRates(Method):
    """Chosen modules move along their direction on each batch, all with the same rate.

    Learnable tensors go down the entropy, running statistics go towards the batch's; a negative rate goes
    the other way: Figure 3 of the paper.

    Paper: Bao, Wei, Wang and He, "Adaptive Test-Time Personalization for Federated Learning", NeurIPS 2023.
    """

    rate: float = tunable(
        0.1, "how far the modules go; may be negative", (-1.0, -0.1, 0.01, 0.1, 1.0), NUMBER
    )
    modules: str = tunable(
        "*", "state-dict keys with the wildcards * and ?; several with | between them", limit=STRING
    )
    mode: str = tunable(
        "batch", "batch, or online for the mean of all directions so far", limit=one_of(*get_args(Mode))
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model, ready to move these modules."""
        rates, patterns = Rates.zeros(model), self.modules.split("|")
        moving = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in rates.names]
        if not any(moving):
            raise MethodError(f"no module is called {self.modules!r}; there are: {', '.join(rates.names)}")
        values = rates.with_values(torch.tensor(moving, dtype=rates.values.dtype) * self.rate)
        return Personalized(Personalizer(model, values, mode=cast(Mode, self.mode)))
