"""No adaptation: what everything is compared with."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ttpfl.methods.base import Knowledge, Method, Personal, method


@method("none")
@dataclass(frozen=True)
class NoAdaptation(Method):
    """The global model as it is."""

    remembers = False

    def personal(self, model: nn.Module, knowledge: Knowledge) -> Personal:
        """The model itself."""
        return _Plain(model)


class _Plain(Personal):
    def adapt(self, batch: Any) -> Tensor:
        return self.plain(batch)

    def reset(self) -> None:
        pass
