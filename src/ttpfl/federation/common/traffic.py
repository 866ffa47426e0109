"""Bytes that a real federation would send."""

from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Counts the bytes sent to and from the clients of each round.

    In training, the model is sent both ways in every round: 2TD numbers for a client in T rounds. In rate
    learning, the model is sent once and the d rates both ways: D + 2Td.

    >>> traffic = Traffic(model_bytes=4000, vector_bytes=40, once=True)
    >>> traffic.count([0, 1]), traffic.count([1, 2])
    (8160, 4160)
    >>> traffic.total
    12320
    """

    model_bytes: int
    vector_bytes: int
    once: bool
    """Whether the model is sent once to each client, in addition to the vectors."""
    total: int = 0
    _reached: set[int] = field(default_factory=set)

    def count(self, cohort: list[int]) -> int:
        """Count a round and return its bytes."""
        sent = 2 * self.vector_bytes * len(cohort)
        if self.once:
            sent += self.model_bytes * len(set(cohort) - self._reached)
            self._reached.update(cohort)
        self.total += sent
        return sent
