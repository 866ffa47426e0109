"""No adaptation: the baseline of every comparison."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ttpfl.methods.base import Method, SourceInfo, StatelessAdapter, method


@method("none")
@dataclass(frozen=True)
class NoAdaptation(Method):
    """The unadapted global model."""

    stateful = False

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> StatelessAdapter:
        """The model itself."""
        return _Plain(model)


class _Plain(StatelessAdapter):
    def adapt(self, batch: Any) -> Tensor:
        return self.plain(batch)
