"""Surgical adaptation: one gradient step in the block that helps most on source data."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ttpfl.core.direction import entropy, move, probe
from ttpfl.core.inputs import Inputs, checked
from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin, isolated
from ttpfl.errors import MethodError
from ttpfl.methods.atp import Personalized
from ttpfl.methods.base import Adapter, Labelled, Method, SourceInfo, Summary, method, tunable
from ttpfl.util.settings_kit import NOT_NEGATIVE, STRING, check_known


@method("surgical")
@dataclass(frozen=True)
class Surgical(Method):
    """Takes one entropy step in one block, starting from the global model on each batch.

    The block is the one with the highest accuracy on the source clients' validation data. As in the ATP
    authors' code, there is one step per batch, in evaluation mode.

    Paper: Lee, Chen, Tajwar, Kumar, Yao, Liang and Finn, "Surgical Fine-Tuning Improves Adaptation to
    Distribution Shifts", ICLR 2023.
    """

    stateful = False

    lr: float = tunable(0.1, "learning rate", (1e-3, 1e-2, 0.1, 1.0, 10.0), NOT_NEGATIVE)
    block: str = tunable("", "block to adapt; the best on source data if empty", limit=STRING)

    @property
    def needs_source(self) -> bool:
        """Unless `block` is set."""
        return not self.block

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """The number of correct predictions after a step in each block."""
        blocks, rates = _blocks(model), Rates.zeros(model, only="params")
        with isolated():
            twin, lr = Twin(model, rates.modules), torch.tensor(self.lr)
            hits: Summary = {block: torch.tensor(0.0) for block in blocks}
            for x, y in batches:
                inputs = checked(Inputs((x,), {}))
                direction = probe(twin, inputs, entropy).direction
                with torch.no_grad():
                    for block, members in blocks.items():
                        moved = move(twin, {n: direction[n] for n in members}, dict.fromkeys(members, lr))
                        hits[block] += (twin.plain(inputs, moved).argmax(1) == y).sum()
        return hits

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A `Personalizer` that adapts the block."""
        rates = Rates.zeros(model, only="params")
        moving = set(_blocks(model)[self._block(model, source_info.summary)])
        values = [self.lr if spec.name in moving else 0.0 for spec in rates.modules]
        return Personalized(Personalizer(model, rates.with_values(torch.tensor(values))))

    def _block(self, model: nn.Module, hits: dict[str, Tensor]) -> str:
        if self.needs_source and not hits:
            raise MethodError("surgical needs the source clients' summaries: gather them, or set block")
        best = self.block or max(hits, key=lambda block: float(hits[block]))
        check_known("block", best, _blocks(model), MethodError, "of the network")
        return best


def _blocks(model: nn.Module) -> dict[str, list[str]]:
    """The names of each block's parameters."""
    blocks: dict[str, list[str]] = {}
    for spec in Rates.zeros(model, only="params").modules:
        blocks.setdefault(spec.block, []).append(spec.name)
    return blocks
