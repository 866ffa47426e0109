"""Your own network with GroupNorm instead of BatchNorm.

GroupNorm keeps no running statistics, so nothing but weights can adapt: methods that replace BatchNorm's
statistics can do nothing here, while rates are learned as for any other network. The digits are damaged by
other corruptions at new clients than at source clients, and each client has its own mix of classes.
"""

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from ttpfl.data import federate
from ttpfl.evaluation import Evaluator
from ttpfl.federation import LearnSettings, TrainSettings, learn, train


class GroupNormNet(nn.Module):
    """Two convolutions with GroupNorm, and two linear layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.GroupNorm(4, 16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32)
        self.hidden = nn.Linear(32 * 7 * 7, 64)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images of 28x28 pixels."""
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(F.relu(self.hidden(x.flatten(1))))


def main(rounds: int = 12, rate_rounds: int = 10, samples: int = 120) -> None:
    """Train over source clients, learn rates, and look at new clients with and without adaptation."""
    torch.manual_seed(0)
    clients, answers, _ = federate("digits", shift="hybrid", samples=samples)
    begin = GroupNormNet(classes=10)
    model, _ = train(begin, clients.source, TrainSettings(rounds=rounds, lr=0.1, workers=0))
    settings = LearnSettings(rounds=rate_rounds, lr=0.5, mode="online", workers=0)
    rates, _ = learn(model, clients.source, settings)
    print(rates, "\n")

    new = Evaluator(clients.target, answers, batch_size=20)
    adapted = new.of_rates(model, rates)
    print(f"accuracy at {len(clients.target)} new clients")
    print(f"  no adaptation: {new.of_model(model)['accuracy']:.1%}")
    print(f"  ATP-batch:     {adapted['batch']:.1%}")
    print(f"  ATP-online:    {adapted['online']:.1%}")


if __name__ == "__main__":
    typer.run(main)
