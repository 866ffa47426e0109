"""ATP with the same fixed rate for chosen modules."""

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
    """Chosen modules move along their directions on each batch, all with the same rate.

    Learnable tensors descend the entropy, running statistics move towards the batch's; a negative rate
    reverses this. See Figure 3 of the paper.

    Paper: Bao, Wei, Wang and He, "Adaptive Test-Time Personalization for Federated Learning", NeurIPS 2023.
    """

    rate: float = tunable(0.1, "rate of the modules; may be negative", (-1.0, -0.1, 0.01, 0.1, 1.0), NUMBER)
    modules: str = tunable("*", "state-dict keys, with wildcards * and ?, separated by |", limit=STRING)
    mode: str = tunable(
        "batch",
        "batch, or online for the mean direction over all batches so far",
        limit=one_of(*get_args(Mode)),
    )

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A `Personalizer` that moves these modules."""
        rates, patterns = Rates.zeros(model), self.modules.split("|")
        moving = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in rates.names]
        if not any(moving):
            raise MethodError(f"no module matches {self.modules!r}; available: {', '.join(rates.names)}")
        values = rates.with_values(torch.tensor(moving, dtype=rates.values.dtype) * self.rate)
        return Personalized(Personalizer(model, values, mode=cast(Mode, self.mode)))
