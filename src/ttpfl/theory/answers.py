"""All that the generalisation bound says about given values, as plain data."""

from typing import Any

from ttpfl.theory.generalisation import Ball, clients_needed, epsilon_guaranteed, generalisation_bound


def answers(
    batches: int, epsilon: float, failure: float, clients: int | None = None, ball: Ball | None = None
) -> dict[str, Any]:
    """The clients needed for `epsilon` and `failure`; with `clients`, also what so many of them guarantee.

    >>> answers(batches=2, epsilon=0.1, failure=0.05)
    {'clients_needed': 639}
    >>> list(answers(batches=2, epsilon=0.1, failure=0.05, clients=240))
    ['clients_needed', 'log_bound', 'bound', 'vacuous', 'epsilon_guaranteed']
    """
    found: dict[str, Any] = {"clients_needed": clients_needed(batches, epsilon, failure, ball)}
    if clients is not None:
        bound = generalisation_bound(clients, batches, epsilon, ball)
        found |= {
            "log_bound": bound.log,
            "bound": bound.value,
            "vacuous": bound.vacuous,
            "epsilon_guaranteed": epsilon_guaranteed(clients, batches, failure, ball),
        }
    return found
