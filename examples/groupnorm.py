"""Use your own network with GroupNorm instead of BatchNorm.

GroupNorm keeps no running statistics, so only weights can adapt. Methods that replace BatchNorm's
statistics have no effect here, while rates are learned as for any other network. Each client has two
frequent and eight rare digits.
"""

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from ttpfl import learn_rates
from ttpfl.data import federate
from ttpfl.evaluation import Evaluator


class GroupNormNet(nn.Module):
    """Two convolutions with GroupNorm, followed by two linear layers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.GroupNorm(4, 16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32)
        self.hidden = nn.Linear(32 * 7 * 7, 64)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of 28x28 images."""
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(F.relu(self.hidden(x.flatten(1))))


def trained(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """Plain centralised training. Rates can be learned for any trained model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main(rounds: int = 4, clients: int = 36, samples: int = 120) -> None:
    """Train on source clients, learn rates, and evaluate new clients with and without adaptation."""
    torch.manual_seed(0)
    choices = {"source_clients": clients, "target_clients": clients // 4, "samples": samples}
    population, target_labels, _ = federate("digits", shift="label", **choices)
    x, y = (torch.cat(part) for part in zip(*(client.train() for client in population.source), strict=True))
    model = trained(GroupNormNet(classes=10), x, y, epochs=rounds)
    rates = learn_rates(model, population.source)
    print(rates, "\n")

    new = Evaluator(population.target, target_labels, batch_size=20)
    adapted = new.of_rates(model, rates)
    print(f"accuracy at {len(population.target)} new clients")
    print(f"  no adaptation: {new.of_model(model)['accuracy']:.1%}")
    print(f"  ATP-batch:     {adapted['batch']:.1%}")
    print(f"  ATP-online:    {adapted['online']:.1%}")


if __name__ == "__main__":
    typer.run(main)
