"""The toy example: the paper's figures, plain sampling, and what learning should find."""

import json
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ttpfl.errors import TheoryError
from ttpfl.experiment.toy import ALPHAS, TESTING, TRAINING, OneNorm, accuracy, best_alpha, draw, learned, toy


@pytest.fixture(scope="module")
def example() -> dict:
    return toy(samples=40_000, seed=3)


def test_closed_form_is_the_papers() -> None:
    assert [round(accuracy(alpha), 3) for alpha in (1, 0.5, 0, -0.5)] == [0.715, 0.823, 0.894, 0.926]
    assert round(accuracy(0, TRAINING), 2) == 0.89


@pytest.mark.parametrize("positive", [0.05, 0.3, TESTING, 0.99])
def test_the_best_rate_is_the_best_and_negative(positive: float) -> None:
    found = minimize_scalar(lambda alpha: -accuracy(alpha, positive), bounds=(-5, 5), method="bounded")
    assert best_alpha(positive) == pytest.approx(found.x, abs=1e-3)
    assert best_alpha(positive) < 0


def test_samples_agree_with_the_closed_form(example: dict) -> None:
    """To three standard errors: 0.5 / sqrt(40,000) = 0.0025."""
    assert [line["alpha"] for line in example["alphas"]] == list(ALPHAS)
    for line in [*example["alphas"], example["training"], example["learned"]]:
        assert line["sampled"] == pytest.approx(line["closed_form"], abs=0.0075)


def test_the_boundary_moves_by_the_batch_mean() -> None:
    """Adapted by hand: class +1 is what lies above (1 - alpha) * stored mean + alpha * batch mean."""
    generator = np.random.default_rng(1)
    x_train = draw(TRAINING, 500, generator).x.double().mean()
    x, y = (part.double().flatten() for part in draw(TESTING, 500, generator))
    found = toy(alphas=[0.3, -2.0], samples=500, seed=1)
    for line in found["alphas"]:
        boundary = (1 - line["alpha"]) * x_train + line["alpha"] * x.mean()
        assert line["sampled"] == float(((x > boundary) == (y == 1)).double().mean())


def test_learning_finds_by_itself_that_the_rate_is_negative(example: dict) -> None:
    """Source clients with frequencies from 0.1 to 0.9 have best rates from -0.88 to -0.64, but for chance."""
    assert best_alpha(0.9) - 0.1 < example["learned"]["rates"]["norm.running_mean"] < best_alpha(0.501) + 0.1
    assert example["learned"]["sampled"] > max(line["sampled"] for line in example["alphas"])


def test_learned_rates_have_the_smallest_loss() -> None:
    """Mean cross-entropy over the same source clients, from the formulas of BatchNorm and of the logits."""
    model = OneNorm(draw(TRAINING, 1000, np.random.default_rng(0)).x)
    rates = learned(model, np.random.default_rng(5))
    generator = np.random.default_rng(5)
    clients = [draw(positive, 200, generator) for positive in generator.uniform(0.1, 0.9, 16)]
    mean, variance = float(model.norm.running_mean), float(model.norm.running_var)
    alpha_variance = float(rates.values[1])

    def loss(alpha_mean: float) -> float:
        losses = []
        for x, y in clients:
            x, sign = x.double().numpy().ravel(), 2 * y.numpy() - 1
            m = mean + alpha_mean * (x.mean() - mean)
            v = variance + alpha_variance * (x.var(ddof=1) - variance)
            log_odds = 2 * math.sqrt(1.64) / 0.64 * (x - m) / np.sqrt(v + 1e-5)
            losses.append(np.logaddexp(0, -sign * log_odds).mean())
        return float(np.mean(losses))

    best = minimize_scalar(loss, bounds=(-3, 3), method="bounded").x
    assert float(rates.values[0]) == pytest.approx(best, abs=5e-3)


def test_histograms_count_everything(example: dict) -> None:
    found = example["histograms"]
    assert len(found["after"]) == len(ALPHAS)
    for histogram in [*found["before"].values(), *found["after"]]:
        assert sum(map(sum, histogram.values())) == 40_000
        assert {len(counts) for counts in histogram.values()} == {len(found["edges"]) - 1}
    # Without adaptation, what is right can be counted in the histogram: zero is the edge of a bin.
    middle = found["edges"].index(0)
    plain = found["after"][ALPHAS.index(0)]
    right = sum(plain["-"][:middle]) + sum(plain["+"][middle:])
    assert right / 40_000 == example["alphas"][ALPHAS.index(0)]["sampled"]


def test_plain_data_that_the_seed_decides() -> None:
    first = toy([7], samples=50, seed=1)
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert first == toy([7], samples=50, seed=1)
    assert first["histograms"] != toy([7], samples=50, seed=2)["histograms"]


def test_bad_values_are_named() -> None:
    with pytest.raises(TheoryError, match="samples must be an integer of at least 2, got 1"):
        toy(samples=1)
    with pytest.raises(TheoryError, match=r"positive must be .* got 0\.5"):
        best_alpha(0.5)
