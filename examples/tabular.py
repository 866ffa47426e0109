"""Use tabular data: an MLP with BatchNorm1d on tumour measurements.

scikit-learn's breast cancer data set has 569 patients with 30 measurements each. Source sites and new sites
have different patients. The differences between sites are simulated: each has its own share of malignant
tumours and its own instrument, which scales and shifts every measurement. The patients are real, the
instruments are synthetic.
"""

import numpy as np
import torch
import typer
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

from ttpfl import Personalizer, Rates, learn_rates
from ttpfl.federation import TrainSettings, train

Site = tuple[Tensor, Tensor]


def measured(site: int, x: np.ndarray, y: np.ndarray, patients: int) -> Site:
    """The data of a site: some of the patients in x and y, measured with its own instrument."""
    nature, draw = np.random.default_rng([site, 0]), np.random.default_rng([site, len(y)])
    share, scale, offset = nature.uniform(0.1, 0.9), nature.lognormal(0, 0.5, 30), nature.normal(0, 1, 30)
    labels = draw.random(patients) < share
    rows = [draw.choice(np.flatnonzero(y == label)) for label in labels]
    return torch.tensor(x[rows] * scale + offset, dtype=torch.float32), torch.tensor(y[rows])


def accuracy(model: nn.Module, rates: Rates, sites: list[Site]) -> float:
    """Mean accuracy over sites, each with a fresh personalizer and batches of 20 patients."""
    accuracies = []
    for x, y in sites:
        personal = Personalizer(model, rates, mode="online")
        predictions = torch.cat([personal(batch).argmax(1) for batch in x.split(20)])
        accuracies.append(float((predictions == y).float().mean()))
    return float(np.mean(accuracies))


def main(rounds: int = 20, patients: int = 100) -> None:
    """Train over 20 source sites, learn rates, and evaluate 20 new sites with and without adaptation."""
    torch.manual_seed(0)
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    known, held_back, new = order[:200], order[200:350], order[350:]
    x = (x - x[known].mean(0)) / x[known].std(0)
    sources, others = range(20), range(20, 40)

    network = nn.Sequential(
        nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU(),
        nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2),
    )  # fmt: skip
    to_train = [measured(site, x[known], y[known], patients) for site in sources]
    model, _ = train(network, to_train, TrainSettings(rounds=rounds, lr=0.05, workers=0))
    to_learn = [measured(site, x[held_back], y[held_back], patients) for site in sources]
    rates = learn_rates(model, to_learn)
    print(rates, "\n")

    streams = [measured(site, x[new], y[new], patients) for site in others]
    print(f"accuracy at {len(streams)} new sites")
    print(f"  no adaptation: {accuracy(model, Rates.zeros(model), streams):.1%}")
    print(f"  ATP-online:    {accuracy(model, rates, streams):.1%}")


if __name__ == "__main__":
    typer.run(main)
