"""How quickly the rates are learned."""

from typing import NamedTuple

from ttpfl.errors import TheoryError
from ttpfl.theory.decimals import decimals, product
from ttpfl.util.settings_kit import NOT_NEGATIVE, POSITIVE, integer


class Convergence(NamedTuple):
    """How far the loss, as a mean over all steps, is above the smallest possible one: the four parts."""

    start: float
    """From where the rates begin; it vanishes with the number of rounds."""
    noise: float
    """From batches that differ; it vanishes with the number of clients."""
    batch_drift: float
    """From several local steps on batches that differ."""
    client_drift: float
    """From several local steps at clients that differ."""

    @property
    def total(self) -> float:
        """The bound."""
        return sum(self)


def largest_step(beta: float, direction: float) -> float:
    """The largest step size that the convergence bound holds for, 1 / (4 H^2 beta).

    The paper prints "eta >= 1 / (4 H^2 beta)". That is a misprint: what is needed is a step of at most that
    size. With much larger ones learning diverges, which no bound allows.

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
    """Bound of the loss while rates are learned, if it is convex and all clients take part in every round.

    It is a bound for plain steps, alpha -= eta * gradient; `refine_rates` also divides the step of each
    module by the square root of its size.

    Args:
        distance: norm of the difference between the first rates and the best.
        eta: the step size; at most `largest_step`.
        tau: steps that a client takes in a round.
        rounds: T.
        clients: N.
        beta: smoothness of the loss in the network's weights; in the rates it is H^2 beta.
        direction: H, the largest norm of one module's direction.
        sigma: standard deviation of the gradient over one client's batches, at most.
        zeta: difference between one client's gradient and the mean of all clients', at most.

    >>> bound = convergence_bound(distance=1, eta=0.01, tau=2, rounds=200, clients=240,
    ...                           beta=1, direction=2, sigma=1, zeta=0.5)
    >>> round(bound.start, 4), round(bound.total, 4)
    (0.125, 0.1354)
    """
    integer(1).check(TheoryError, tau=tau, rounds=rounds, clients=clients)
    POSITIVE.check(TheoryError, eta=eta)
    NOT_NEGATIVE.check(TheoryError, distance=distance, sigma=sigma, zeta=zeta)
    largest = largest_step(beta, direction)
    if eta > largest * (1 + 1e-12):  # who computes it from the formula may round it up
        raise TheoryError(
            f"eta is {eta}: the bound holds for steps up to 1 / (4 H^2 beta) = {largest:.6g} "
            "(the paper prints 'at least', which is a misprint)"
        )
    with decimals():
        variance, spread = product(sigma, sigma), product(zeta, zeta)
        bend = product(eta, eta, direction, direction, beta)
        parts = (
            product(distance, distance) / (2 * product(eta) * tau * rounds),
            product(eta) * variance / clients,
            4 * tau * bend * variance,
            18 * tau**2 * bend * spread,
        )
    return Convergence(*map(float, parts))
