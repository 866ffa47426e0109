"""No adaptation: what everything is compared with."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ttpfl.methods.base import Adapter, Method, SourceInfo, method


@method("none")
@dataclass(frozen=True)
class NoAdaptation(Method):
    """The global model as it is."""

    stateful = False

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """The model itself."""
        return _Plain(model)


class _Plain(Adapter):
    def adapt(self, batch: Any) -> Tensor:
        return self.plain(batch)

    def reset(self) -> None:
        pass
