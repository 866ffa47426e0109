"""Results of the generalisation bound, as plain data."""

from typing import Any

from ttpfl.theory.generalisation import Ball, clients_needed, epsilon_guaranteed, generalisation_bound


def answers(
    batches: int, epsilon: float, failure: float, clients: int | None = None, ball: Ball | None = None
) -> dict[str, Any]:
    """Compute the clients needed for `epsilon` and `failure`, and what a number of `clients` guarantees.

    >>> answers(batches=2, epsilon=0.1, failure=0.05)
    {'clients_needed': 639}
    >>> list(answers(batches=2, epsilon=0.1, failure=0.05, clients=240))
    ['clients_needed', 'log_bound', 'bound', 'vacuous', 'epsilon_guaranteed']
    """
    needed = {"clients_needed": clients_needed(batches, epsilon, failure, ball)}
    if clients is None:
        return needed
    bound = generalisation_bound(clients, batches, epsilon, ball)
    guaranteed = epsilon_guaranteed(clients, batches, failure, ball)
    values = {"log_bound": bound.log, "bound": bound.value, "vacuous": bound.vacuous}
    return {**needed, **values, "epsilon_guaranteed": guaranteed}
