"""The bounds in Section 5 of the paper, for values of any size, without torch."""

from ttpfl.theory.convergence import Convergence, convergence_bound, largest_step
from ttpfl.theory.generalisation import Ball, Bound, clients_needed, epsilon_guaranteed, generalisation_bound

__all__ = [
    "Ball",
    "Bound",
    "Convergence",
    "clients_needed",
    "convergence_bound",
    "epsilon_guaranteed",
    "generalisation_bound",
    "largest_step",
]
