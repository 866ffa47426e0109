"""The convergence bound: how fast the rates are learned."""

from typing import NamedTuple

from ttpfl.errors import TheoryError
from ttpfl.theory.decimals import decimals, product
from ttpfl.util.settings_kit import NOT_NEGATIVE, POSITIVE, integer


class Convergence(NamedTuple):
    """Four parts of the bound on the mean loss over all steps, minus the smallest possible loss."""

    start: float
    """Distance of the initial rates; it vanishes with the number of rounds."""
    noise: float
    """Differences between batches; it vanishes with the number of clients."""
    batch_drift: float
    """Several local steps on different batches."""
    client_drift: float
    """Several local steps at different clients."""

    @property
    def total(self) -> float:
        """The bound."""
        return sum(self)


def largest_step(beta: float, direction: float) -> float:
    """Largest step size for which the convergence bound holds, 1 / (4 H^2 beta).

    The paper prints "eta >= 1 / (4 H^2 beta)", which is a misprint: the step must be at most that large. With
    much larger steps, learning diverges.

    >>> largest_step(beta=1, direction=2)
    0.0625
    """
    POSITIVE.check(TheoryError, beta=beta, direction=direction)
    with decimals():
        return float(1 / product(4, direction, direction, beta))


def convergence_bound(
    *,
    distance: float,
    eta: float,
    tau: int,
    rounds: int,
    clients: int,
    beta: float,
    direction: float,
    sigma: float,
    zeta: float,
) -> Convergence:
    """Bound on the loss during learning, if it is convex and all clients take part in every round.

    It holds for plain steps, alpha -= eta * gradient; `refine_rates` also divides the step of each module by
    the square root of its size.

    Args:
        distance: norm of the difference between the initial and the best rates.
        eta: step size, at most `largest_step`.
        tau: steps per client and round.
        rounds: T.
        clients: N.
        beta: smoothness of the loss in the network's weights; in the rates it is H^2 beta.
        direction: H, the largest norm of one module's direction.
        sigma: largest standard deviation of the gradient over one client's batches.
        zeta: largest difference between one client's gradient and the mean over clients.

    >>> bound = convergence_bound(distance=1, eta=0.01, tau=2, rounds=200, clients=240,
    ...                           beta=1, direction=2, sigma=1, zeta=0.5)
    >>> round(bound.start, 4), round(bound.total, 4)
    (0.125, 0.1354)
    """
    integer(1).check(TheoryError, tau=tau, rounds=rounds, clients=clients)
    POSITIVE.check(TheoryError, eta=eta)
    NOT_NEGATIVE.check(TheoryError, distance=distance, sigma=sigma, zeta=zeta)
    largest = largest_step(beta, direction)
    if eta > largest * (1 + 1e-12):  # a value computed from the formula may be rounded up
        raise TheoryError(
            f"eta is {eta}, but the bound only holds up to 1 / (4 H^2 beta) = {largest:.6g} "
            "(the paper prints 'at least', which is a misprint)"
        )
    with decimals():
        variance, spread = product(sigma, sigma), product(zeta, zeta)
        curvature = product(eta, eta, direction, direction, beta)
        start = product(distance, distance) / (2 * product(eta) * tau * rounds)
        noise = product(eta) * variance / clients
        drifts = 4 * tau * curvature * variance, 18 * tau**2 * curvature * spread
    return Convergence(*map(float, (start, noise, *drifts)))
