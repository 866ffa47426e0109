"""Do further directions pay? The gradient of the marginal entropy (diversity) in the last layer.

    python benchmarks/more_directions.py --natural FOLDER --data-dir DIR [--problems har ecg ...]

Only the last layer and the label prior move, so features are computed once, and rates are found exactly, by
L-BFGS on half of the source clients. The table shows accuracy and loss at the other half. Diversity makes the
mean prediction of a batch more even, where entropy makes each prediction more certain. New clients play no
part. FOLDER contains har.npz and ecg.npz.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from learning.options import folders_of, study_parser
from learning.problems import PROBLEMS, Client
from ttpfl.core.direction import entropy
from ttpfl.core.label_prior import prior_direction, weighted_prediction
from ttpfl.federation.server.credibility import assumed_counts
from ttpfl.federation.server.robust import Average

MOST_CLIENTS, BATCH = 120, 20
CHOICES = {
    "no adaptation": (0, 0, 0, 0, 0),
    "entropy": (1, 1, 0, 0, 0),
    "entropy, prior": (1, 1, 0, 0, 1),
    "entropy, diversity": (1, 1, 1, 1, 0),
    "entropy, diversity, prior": (1, 1, 1, 1, 1),
}
"""Which of these move: weight and bias by entropy, weight and bias by diversity, label prior."""


class Batch(NamedTuple):
    """Features and labels of a batch, its directions, and its share of the mean over clients."""

    features: Tensor
    labels: Tensor
    directions: Sequence[Tensor]
    prior: Tensor
    share: float


def main() -> None:
    parser = study_parser(__doc__)
    options = parser.parse_args()
    folders = folders_of(options)
    table = Table("source clients of", "directions", "loss", "accuracy", "rates")
    for name in options.problems:
        model, source, _ = PROBLEMS[name](folders)
        layer = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
        clients = [in_batches(model, layer, client) for client in source[:MOST_CLIENTS]]
        assumed = assumed_of(layer, clients[0::2])
        learning, testing = (prepared(layer, half, assumed) for half in (clients[0::2], clients[1::2]))
        for choice, moving in CHOICES.items():
            rates = learned(layer, learning, torch.tensor(moving, dtype=torch.float32))
            with torch.no_grad():
                loss, accuracy = evaluated(layer, testing, rates)
            shown = " ".join(f"{rate:.2f}" for rate in rates.tolist())
            table.add_row(name, choice, f"{loss:.3f}", f"{100 * accuracy:.1f}", shown)
        Console(width=110).print(table)


def in_batches(model: nn.Module, layer: nn.Linear, client: Client) -> list[tuple[Tensor, Tensor]]:
    """Features and labels of a client's batches."""
    x, y = client
    features = list[Tensor]()
    hook = layer.register_forward_pre_hook(lambda _, args: features.append(args[0].detach()))
    with torch.no_grad():
        for part in x.split(BATCH):
            model(part)
    hook.remove()
    return list(zip(features, y.split(BATCH), strict=True))


def assumed_of(layer: nn.Linear, clients: Sequence[list[tuple[Tensor, Tensor]]]) -> list[float]:
    """The counts of the label prior."""
    with torch.no_grad():
        rows = [torch.cat([layer(features).softmax(1) for features, _ in client]) for client in clients]
    means = torch.stack([weighted_prediction(row) for row in rows])
    return assumed_counts(means, torch.tensor([len(row) for row in rows]), Average()).tolist()


def prepared(
    layer: nn.Linear, clients: Sequence[list[tuple[Tensor, Tensor]]], assumed: list[float]
) -> list[Batch]:
    """All batches with their directions."""
    tensors = (layer.weight.detach().requires_grad_(), layer.bias.detach().requires_grad_())
    result = list[Batch]()
    for client in clients:
        for features, labels in client:
            logits = F.linear(features, *tensors)
            mean = logits.softmax(1).mean(0)
            down = torch.autograd.grad(-entropy(logits), tensors, retain_graph=True)
            up = torch.autograd.grad(-(mean * mean.log()).sum(), tensors)
            prior = prior_direction(logits.detach().softmax(1).double().sum(0), assumed)
            share = len(labels) / sum(len(y) for _, y in client) / len(clients)
            result.append(Batch(features, labels, (*down, *up), prior, share))
    return result


def evaluated(layer: nn.Linear, batches: Sequence[Batch], rates: Tensor) -> tuple[Tensor, float]:
    """Mean loss and accuracy over clients after adaptation."""
    total, accuracy = torch.zeros(()), 0.0
    for features, labels, (weight, bias, weight_up, bias_up), prior, share in batches:
        moved = layer.weight.detach() + rates[0] * weight + rates[2] * weight_up
        moved_bias = layer.bias.detach() + rates[1] * bias + rates[3] * bias_up
        logits = F.linear(features, moved, moved_bias) + rates[4] * prior
        total = total + share * F.cross_entropy(logits, labels)
        accuracy += share * float((logits.argmax(1) == labels).float().mean())
    return total, accuracy


def learned(layer: nn.Linear, batches: Sequence[Batch], moving: Tensor) -> Tensor:
    """Rates with the lowest mean loss; zero for what does not move."""
    rates = torch.zeros(len(moving), requires_grad=True)
    optimizer = torch.optim.LBFGS([rates], max_iter=30, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss, _ = evaluated(layer, batches, rates * moving)
        loss.backward()
        return loss

    if moving.any():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return (rates * moving).detach()


if __name__ == "__main__":
    main()
