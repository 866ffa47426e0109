"""Do finer rates pay? One rate per group of channels of a BatchNorm layer, instead of one per tensor.

    python benchmarks/channel_rates.py --natural FOLDER --data-dir DIR [--problems har ...] [--groups 1 4 16]

Every BatchNorm layer is replaced by several, each for a group of its channels, which computes the same but
has more modules. Rates are learned on half of the source clients and tested on the other half, then the other
way round. The learner shrinks rates on which clients disagree. New clients play no part. FOLDER contains
har.npz and ecg.npz.
"""

from copy import deepcopy

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from learning.options import folders_of, study_parser
from learning.problems import PROBLEMS, Folders
from learning_choices import BATCH, add, tested
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings, learn


class GroupedNorm(nn.Module):
    """A BatchNorm layer as several, each for consecutive channels."""

    def __init__(self, whole: nn.modules.batchnorm._BatchNorm, groups: int) -> None:
        super().__init__()
        channels = torch.arange(whole.num_features).tensor_split(min(groups, whole.num_features))
        self.parts = nn.ModuleList(_part(whole, own) for own in channels)

    def forward(self, x: Tensor) -> Tensor:
        each = x.split([part.num_features for part in self.parts], dim=1)
        return torch.cat([part(channels) for part, channels in zip(self.parts, each, strict=True)], 1)


def _part(whole: nn.modules.batchnorm._BatchNorm, channels: Tensor) -> nn.Module:
    part = type(whole)(len(channels), whole.eps, whole.momentum)
    state = {name: value[channels] if value.dim() else value for name, value in whole.state_dict().items()}
    part.load_state_dict(state)
    return part


def grouped(model: nn.Module, groups: int) -> nn.Module:
    """A copy of the model whose BatchNorm layers are split into groups of channels."""
    model = deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            model.set_submodule(name, GroupedNorm(layer, groups))
    return model.eval()


def main() -> None:
    parser = study_parser(__doc__)
    parser.add_argument("--groups", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--most", type=int, help="source clients of a problem; all by default")
    parser.add_argument("--workers", type=int)
    options = parser.parse_args()
    folders = folders_of(options)
    table = Table("problem, groups", "rounds", "loss, batch", "accuracy", "loss, online", "accuracy")
    for name in options.problems:
        study(name, folders, table, options.groups, options.most, options.workers)
    Console(width=120).print(table)


def study(
    name: str, folders: Folders, table: Table, groups: list[int], most: int | None, workers: int | None
) -> None:
    """Learn and test rates for each number of groups, by two-fold cross-validation over clients."""
    model, clients, _ = PROBLEMS[name](folders)
    clients = clients[:most]
    halves = [(clients[0::2], clients[1::2]), (clients[1::2], clients[0::2])]
    plain = [tested(model, Rates.zeros(model), others) for _, others in halves]
    add(table, f"{name}: no adaptation", [0], plain)
    for number in groups:
        split = grouped(model, number)
        settings = LearnSettings(batch_size=BATCH, budget=2, prior=True, workers=workers)
        found = [learn(split, own, settings) for own, _ in halves]
        metrics = [
            tested(split, rates, others) for (rates, _), (_, others) in zip(found, halves, strict=True)
        ]
        label = f"{name}: {number} groups, {len(found[0][0].values)} rates"
        add(table, label, [len(history) for _, history in found], metrics)


if __name__ == "__main__":
    main()
