"""Surgical adaptation: one block of the network takes a step, the one that helps on source data."""

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
from ttpfl.util.settings_kit import NOT_NEGATIVE, STRING


@method("surgical")
@dataclass(frozen=True)
class Surgical(Method):
    """The parameters of one block take one step down the entropy, from the global model on each batch.

    The block is the one with the most hits on the source clients' validation data. As the authors of ATP
    have it, there is one step per batch, in evaluation mode.

    Paper: Lee, Chen, Tajwar, Kumar, Yao, Liang and Finn, "Surgical Fine-Tuning Improves Adaptation to
    Distribution Shifts", ICLR 2023.
    """

    stateful = False

    lr: float = tunable(0.1, "step size", (1e-3, 1e-2, 0.1, 1.0, 10.0), NOT_NEGATIVE)
    block: str = tunable("", "the block that adapts; the best on source data if empty", limit=STRING)

    @property
    def needs_source(self) -> bool:
        """Unless the block is given."""
        return not self.block

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """How many samples are classified rightly after each block's step."""
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
        """The model, ready to adapt its block."""
        rates = Rates.zeros(model, only="params")
        moving = set(_blocks(model)[self._block(model, source_info.summary)])
        values = [self.lr if spec.name in moving else 0.0 for spec in rates.modules]
        return Personalized(Personalizer(model, rates.with_values(torch.tensor(values))))

    def _block(self, model: nn.Module, hits: dict[str, Tensor]) -> str:
        known = list(_blocks(model))
        if self.needs_source and not hits:
            raise MethodError("surgical needs the source clients' summary, or block= to do without")
        best = self.block or max(hits, key=lambda block: float(hits[block]))
        if best not in known:
            raise MethodError(f"the network has no block {best!r} to adapt; it has: {', '.join(known)}")
        return best


def _blocks(model: nn.Module) -> dict[str, list[str]]:
    """Which parameters each block has."""
    blocks: dict[str, list[str]] = {}
    for spec in Rates.zeros(model, only="params").modules:
        blocks.setdefault(spec.block, []).append(spec.name)
    return blocks
