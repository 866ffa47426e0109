"""The bounds against direct evaluation, exact solutions, properties and simulation."""

import decimal
import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.special import lambertw

from ttpfl.errors import TheoryError
from ttpfl.theory import (
    Ball,
    Bound,
    clients_needed,
    convergence_bound,
    epsilon_guaranteed,
    generalisation_bound,
    largest_step,
)

few = settings(max_examples=40, deadline=None)
counts = st.integers(1, 10_000)
tolerances = st.floats(1e-3, 1)
chances = st.floats(1e-9, 0.99)
sizes = st.floats(1e-2, 1e6)
balls = st.builds(Ball, st.integers(1, 200), sizes, sizes, sizes)
perhaps_balls = st.none() | balls


def log_bound(n: int, k: int, epsilon: float, ball: Ball | None = None) -> float:
    return generalisation_bound(n, k, epsilon, ball).log


@pytest.mark.parametrize(("n", "k", "epsilon"), [(1, 1, 0.5), (240, 2, 0.1), (999, 9, 0.05), (30, 900, 0.3)])
def test_one_hypothesis_as_printed(n: int, k: int, epsilon: float) -> None:
    printed = 4 * math.exp(-2 * n * k * epsilon**2 / (math.sqrt(k) + 1) ** 2)
    bound = generalisation_bound(n, k, epsilon)
    assert bound.value == pytest.approx(min(printed, 1), rel=1e-12)
    assert bound.vacuous == (printed >= 1)


@pytest.mark.parametrize(("n", "d", "lhr"), [(10_000, 3, 1.0), (100_000, 23, 5.0), (5, 2, 0.5)])
def test_theorem_as_printed(n: int, d: int, lhr: float) -> None:
    k, epsilon = 4, 0.1
    printed = (12 * lhr / epsilon) ** d * 4 * math.exp(-n * k * epsilon**2 / (2 * (math.sqrt(k) + 1) ** 2))
    found = generalisation_bound(n, k, epsilon, Ball(d, lhr / 2, 4.0, 0.5))
    assert math.exp(found.log) == pytest.approx(printed, rel=1e-10)


def test_a_tiny_ball_still_has_one_point() -> None:
    """The printed count of points would be 10^-300 of one, and the bound absurdly small."""
    tiny = generalisation_bound(100, 4, 0.5, Ball(100, 1e-3, 1e-3, 1e-3))
    assert tiny.log == pytest.approx(log_bound(100, 4, 0.25))


def test_values_beyond_floating_point() -> None:
    big = Ball(102, 1e6, 1e300, 1e300)
    expected = math.log(4) + 102 * (math.log(12) + 606 * math.log(10) - math.log(0.1))
    found = generalisation_bound(1, 1, 0.1, big)
    assert found.log == pytest.approx(expected - 0.01 / 8)
    assert found.vacuous
    assert found.value == 1
    assert Bound(-1e5).value == 0
    assert generalisation_bound(10**700, 1, 1.0, big) == (-math.inf,)
    assert log_bound(1, 10**400, 1e-300) == pytest.approx(math.log(4))


def test_clients_and_not_batches_make_it_certain() -> None:
    assert log_bound(10**9, 1, 0.01) < -10_000
    limit = math.log(4) - 2 * 100 * 0.1**2  # whatever the number of batches
    assert limit < log_bound(100, 10**12, 0.1) < limit + 1e-4


@few
@given(counts, counts, tolerances, perhaps_balls)
def test_monotone(n: int, k: int, epsilon: float, ball: Ball | None) -> None:
    here = log_bound(n, k, epsilon, ball)
    assert log_bound(n + 1, k, epsilon, ball) < here
    assert log_bound(n, k + 1, epsilon, ball) <= here
    assert log_bound(n, k, epsilon * 0.9, ball) > here
    if ball is not None:
        for name in ("modules", "lipschitz", "direction", "radius"):
            more = replace(ball, **{name: getattr(ball, name) * 2})
            assert log_bound(n, k, epsilon, more) >= here
        # What holds for all rates at once holds for each: at best, half of epsilon is lost.
        assert here >= log_bound(n, k, epsilon / 2) - 1e-9


@few
@given(counts, tolerances, chances, perhaps_balls)
def test_clients_needed_are_enough_and_one_less_is_not(
    k: int, epsilon: float, failure: float, ball: Ball | None
) -> None:
    needed = clients_needed(k, epsilon, failure, ball)
    assert log_bound(needed, k, epsilon, ball) <= math.log(failure) + 1e-9
    if needed > 1:
        assert log_bound(needed - 1, k, epsilon, ball) > math.log(failure) - 1e-9


@given(st.integers(1, 10**6), st.floats(1e-12, 1), st.floats(1e-300, 0.99), perhaps_balls)
@few
def test_clients_needed_are_exact(k: int, epsilon: float, failure: float, ball: Ball | None) -> None:
    """With 400 digits and the formula as it is printed, the whole number is never in doubt."""
    with decimal.localcontext(decimal.Context(prec=400)):
        points, half = Decimal(1), Decimal(epsilon)
        if ball is not None:
            half /= 2
            reach = 12 * Decimal(ball.lipschitz) * Decimal(ball.direction) * Decimal(ball.radius)
            points = max(Decimal(1), reach / Decimal(epsilon)) ** ball.modules
        wanted = (4 * points / Decimal(failure)).ln()
        per_client = 2 * k * half**2 / (Decimal(k).sqrt() + 1) ** 2
        needed = clients_needed(k, epsilon, failure, ball)
        assert (needed - 1) * per_client < wanted <= needed * per_client


def test_clients_needed_with_hundreds_of_digits() -> None:
    """Numbers between which floating point cannot tell: for K = 1, N = 2 log(4 / failure) / epsilon^2."""
    epsilon, failure = 2.0**-1000, 0.25
    needed = clients_needed(1, epsilon, failure)
    # log 16 to 700 digits from the series of log 2: sum of 1 / (n 2^n).
    log_two = sum(Fraction(1, n << n) for n in range(1, 2400))
    assert needed == math.ceil(2 * 4 * log_two * 2**2000)
    assert len(str(needed)) == 603


def test_the_callers_decimal_settings_are_neither_used_nor_changed() -> None:
    expected = clients_needed(2, 0.1, 0.05), epsilon_guaranteed(240, 2, 0.05)
    with decimal.localcontext(decimal.Context(prec=2, traps=[decimal.Inexact])) as context:
        assert (clients_needed(2, 0.1, 0.05), epsilon_guaranteed(240, 2, 0.05)) == expected
        assert context.prec == 2


@few
@given(counts, counts, chances)
def test_epsilon_of_one_hypothesis_has_a_closed_form(n: int, k: int, failure: float) -> None:
    expected = (math.sqrt(k) + 1) * math.sqrt(math.log(4 / failure) / (2 * n * k))
    assert epsilon_guaranteed(n, k, failure) == pytest.approx(expected, rel=1e-9)


@few
@given(counts, counts, chances, st.builds(Ball, st.integers(1, 200), *[st.floats(1, 1e3)] * 3))
def test_epsilon_of_a_ball_against_lambert_w(n: int, k: int, failure: float, ball: Ball) -> None:
    """c e^2 + d log e = m is solved by e^2 = d / (2 c) W(2 c / d exp(2 m / d))."""
    d, c = ball.modules, n * k / (2 * (math.sqrt(k) + 1) ** 2)
    m = d * math.log(12 * ball.lipschitz * ball.direction * ball.radius) + math.log(4 / failure)
    if 2 * m / d > 600:
        return  # beyond what this check can compute
    expected = math.sqrt(d / (2 * c) * lambertw(2 * c / d * math.exp(2 * m / d)).real)
    if expected > 12 * ball.lipschitz * ball.direction * ball.radius:
        return  # one point is enough, and the printed formula does not hold
    assert epsilon_guaranteed(n, k, failure, ball) == pytest.approx(expected, rel=1e-6)


@few
@given(st.integers(1, 10**30), counts, chances, perhaps_balls)
def test_epsilon_and_clients_are_inverse(n: int, k: int, failure: float, ball: Ball | None) -> None:
    epsilon = epsilon_guaranteed(n, k, failure, ball)
    assume(epsilon <= 1)  # above, the bound says nothing
    assert clients_needed(k, epsilon, failure, ball) <= n
    assert clients_needed(k, epsilon * (1 - 1e-9), failure, ball) >= n


@pytest.mark.parametrize("k", [1, 4, 25])
def test_the_bound_holds_in_simulation(k: int) -> None:
    """Clients of very different errors, and batches whose error is 0 or 1: about as wide as errors spread."""
    generator, n, trials = np.random.default_rng(0), 20, 20_000
    client_errors = generator.beta(0.1, 0.1, (trials, n))
    seen = generator.binomial(k, client_errors) / k
    off = abs(seen.mean(1) - 1 / 2)
    noticed = False
    for epsilon in np.linspace(0.05, 0.6, 23):
        often = float((off >= epsilon).mean())
        assert often <= generalisation_bound(n, k, float(epsilon)).value
        noticed |= often > 4 * math.exp(-4 * n * epsilon**2)
    assert noticed  # a bound that falls too quickly


def fedavg(eta: float, case: dict[str, Any], curvature: float, runs: int = 20) -> float:
    """Mean of the loss above the smallest, over all steps of FedAvg on one parabola per client."""
    generator, n = np.random.default_rng(0), case["clients"]
    centres = np.where(np.arange(n) % 2, 1, -1) * case["zeta"] / curvature
    alpha, excess = np.full((runs, 1), case["distance"]), []
    for _ in range(case["rounds"]):
        local = np.repeat(alpha, n, axis=1)
        for _ in range(case["tau"]):
            excess.append(curvature / 2 * local.mean(1) ** 2)
            noise = case["sigma"] * generator.standard_normal((runs, n))
            local -= eta * (curvature * (local - centres) + noise)
        alpha = local.mean(1, keepdims=True)
    return float(np.mean(excess))


@pytest.mark.parametrize("tau", [1, 5])
@pytest.mark.parametrize("rounds", [1, 10, 300])
def test_learning_stays_below_the_convergence_bound(tau: int, rounds: int) -> None:
    case = {"clients": 8, "zeta": 0.7, "sigma": 0.5, "distance": 3.0, "rounds": rounds, "tau": tau}
    beta, direction = 0.5, 2.0
    for part in (0.1, 1.0):
        eta = part * largest_step(beta, direction)
        bound = convergence_bound(**case, eta=eta, beta=beta, direction=direction)
        assert fedavg(eta, case, beta * direction**2) <= bound.total


def test_steps_above_the_largest_diverge_so_at_least_is_a_misprint() -> None:
    case = {"clients": 8, "zeta": 0.7, "sigma": 0.5, "distance": 3.0, "rounds": 300, "tau": 1}
    beta, direction = 0.5, 2.0
    eta = 12 * largest_step(beta, direction)
    promised = convergence_bound(**case, eta=eta / 12, beta=beta, direction=direction).total
    assert fedavg(eta, case, beta * direction**2) > 1e6 * promised
    with pytest.raises(TheoryError, match=r"eta is 1\.5, .* up to 1 / \(4 H\^2 beta\) = 0\.125 .*misprint"):
        convergence_bound(**case, eta=eta, beta=beta, direction=direction)


def test_convergence_as_printed() -> None:
    h, beta, sigma, zeta, eta, tau, rounds, n, distance = 2.0, 3.0, 0.5, 0.25, 0.01, 4, 50, 10, 1.5
    bound = convergence_bound(
        distance=distance, eta=eta, tau=tau, rounds=rounds, clients=n,
        beta=beta, direction=h, sigma=sigma, zeta=zeta,
    )  # fmt: skip
    assert bound == pytest.approx(
        (
            distance**2 / (2 * eta * tau * rounds),
            eta * sigma**2 / n,
            4 * tau * eta**2 * h**2 * beta * sigma**2,
            18 * tau**2 * eta**2 * h**2 * beta * zeta**2,
        )
    )
    assert bound.total == pytest.approx(sum(bound))


@few
@example(1.757869134859915e110, 3.2717355161107724e99)
@given(st.floats(1e-150, 1e150), st.floats(1e-100, 1e100))
def test_the_largest_step_itself_is_accepted(direction: float, beta: float) -> None:
    case = {"distance": 1.0, "tau": 1, "rounds": 1, "clients": 1, "sigma": 1e200, "zeta": 1e200}
    eta = largest_step(beta, direction)
    if math.isfinite(eta) and eta > 0:
        convergence_bound(**case, eta=eta, beta=beta, direction=direction)
        more = max(eta * 1.001, math.nextafter(eta, math.inf))  # subnormal floats lie far apart
        with pytest.raises(TheoryError):
            convergence_bound(**case, eta=more, beta=beta, direction=direction)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generalisation_bound(0, 1, 0.1), "clients must be a positive integer, got 0"),
        (lambda: generalisation_bound(1, 2.5, 0.1), "batches must be a positive integer, got 2.5"),
        (lambda: generalisation_bound(1, 1, 1.1), r"epsilon must be a number above 0 and at most 1, got 1.1"),
        (
            lambda: generalisation_bound(1, 1, math.nan),
            "epsilon must be a number above 0 and at most 1, got nan",
        ),
        (lambda: clients_needed(0, 0.1, 0.1), "batches must be a positive integer, got 0"),
        (lambda: clients_needed(1, 0.0, 0.1), "epsilon must be a number above 0 and at most 1, got 0.0"),
        (lambda: clients_needed(1, 0.1, 1.0), "failure must be a number above 0 and below 1, got 1.0"),
        (lambda: epsilon_guaranteed(1, 1, 0.0), "failure must be a number above 0 and below 1, got 0.0"),
        (lambda: epsilon_guaranteed(-1, 1, 0.1), "clients must be a positive integer, got -1"),
        (lambda: Ball(0, 1, 1, 1), "modules must be a positive integer, got 0"),
        (lambda: Ball(1, 0, 1, 1), "lipschitz must be a positive number, got 0"),
        (lambda: Ball(1, 1, math.inf, 1), "direction must be a positive number, got inf"),
        (lambda: Ball(1, 1, 1, math.nan), "radius must be a positive number, got nan"),
        (lambda: largest_step(0, 1), "beta must be a positive number, got 0"),
    ],
)
def test_bad_values_are_named(call: Any, message: str) -> None:
    with pytest.raises(TheoryError, match=message):
        call()


@pytest.mark.parametrize(("name", "value"), [("sigma", -1.0), ("tau", 0), ("rounds", 0), ("eta", 0.0)])
def test_bad_values_of_learning_are_named(name: str, value: float) -> None:
    case: dict[str, Any] = {
        "distance": 1.0, "eta": 0.1, "tau": 1, "rounds": 1, "clients": 1,
        "beta": 1.0, "direction": 1.0, "sigma": 0.0, "zeta": 0.0,
    }  # fmt: skip
    assert convergence_bound(**case).total == 5
    with pytest.raises(TheoryError, match=f"{name} must be a .*, got {value}"):
        convergence_bound(**{**case, name: value})
