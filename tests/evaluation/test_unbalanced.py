"""Metrics of clients with rare or missing classes, against scikit-learn."""

import warnings
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from ttpfl.evaluation.metrics import class_figures, figures


def expected(labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about predicted classes without labels, which is the point
        return {
            "balanced_accuracy": balanced_accuracy_score(labels, predicted),
            "macro_f1": f1_score(labels, predicted, average="macro", zero_division=0),
        }


@pytest.mark.parametrize("seed", range(50))
def test_random_clients(seed: int) -> None:
    """Unbalanced, so that many clients lack a class in their labels, their predictions or both."""
    random = np.random.default_rng(seed)
    classes, count = int(random.integers(2, 8)), int(random.integers(1, 60))
    labels = random.choice(classes, count, p=random.dirichlet(np.full(classes, 0.3)))
    logits = torch.from_numpy(random.normal(size=(count, classes)))
    logits[:, labels[0]] += 1
    predicted = logits.argmax(1)
    found = figures(logits, torch.from_numpy(labels))
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    for name, value in expected(labels, predicted.numpy()).items():
        assert found[name] == pytest.approx(value, abs=1e-12)


def test_all_clients_of_three_samples() -> None:
    for labels, predicted in product(product(range(3), repeat=3), repeat=2):
        found = class_figures(torch.tensor(predicted), torch.tensor(labels), classes=4)
        assert found == pytest.approx(expected(np.array(labels), np.array(predicted)), abs=1e-12)
