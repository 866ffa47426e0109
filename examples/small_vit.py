"""Use a small vision transformer: attention, LayerNorm, a class token and learned positions.

Every tensor gets its own rate, including plain parameters outside of layers. You can choose fewer rates:
one per layer, block or kind, or none for frozen parameters. The data are handwritten digits from two sources;
each client has two frequent and eight rare digits.
"""

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from ttpfl import Rates, learn_rates
from ttpfl.data import Images, federate, load
from ttpfl.evaluation import Evaluator


class SmallViT(nn.Module):
    """7x7 patches, two attention blocks, and a class token for the prediction."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=7, stride=7)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        block = {"d_model": width, "nhead": 4, "dim_feedforward": 128, "dropout": 0.0}
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(**block, batch_first=True, norm_first=True) for _ in range(2))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of 28x28 images."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def trained(model: nn.Module, x: Tensor, y: Tensor, epochs: int) -> nn.Module:
    """Plain centralised training. Rates can be learned for any trained model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main(rounds: int = 8, clients: int = 28, samples: int = 120) -> None:
    """Train on the source clients' data, learn rates for all or some tensors, and evaluate new clients."""
    torch.manual_seed(0)
    digits = load("digits")
    written = digits.domain < 2  # mnist and uci
    images = Images(digits.x[written], digits.y[written], digits.domain[written], digits.info)
    choices = {"source_clients": clients, "target_clients": clients // 4, "samples": samples}
    population, target_labels, _ = federate(images, shift="label", **choices)
    x, y = (torch.cat(part) for part in zip(*(client.train() for client in population.source), strict=True))
    model = trained(SmallViT(classes=10), x, y, epochs=rounds)

    new = Evaluator(population.target, target_labels, batch_size=20)
    print(f"accuracy at {len(population.target)} new clients")
    print(f"  {'no adaptation:':44}{new.of_model(model)['accuracy']:.1%}")

    def show(what: str, granularity: str) -> None:
        rates = learn_rates(model, population.source, rates=Rates.zeros(model, granularity=granularity))
        print(f"  {f'{len(rates.values)} rates, {what}:':44}{new.of_rates(model, rates)['online']:.1%}")

    show("one per tensor", "tensor")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name or "head" in name)
    show("one per tensor of norms and head", "tensor")
    show("one per layer of norms and head", "layer")


if __name__ == "__main__":
    typer.run(main)
