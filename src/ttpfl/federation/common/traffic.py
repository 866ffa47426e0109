"""Bytes that a real federation would have sent."""

from dataclasses import dataclass, field


@dataclass
class Traffic:
    """Counts what each round's clients get and give.

    When training, the model goes down and up in every round: 2 T D numbers for a client that takes part in T
    rounds. When learning rates, the model goes down once, and the d rates down and up: D + 2 T d.

    >>> traffic = Traffic(model_bytes=4000, vector_bytes=40, once=True)
    >>> traffic.count([0, 1]), traffic.count([1, 2])
    (8160, 4160)
    >>> traffic.total
    12320
    """

    model_bytes: int
    vector_bytes: int
    once: bool
    """Whether the model is sent once, and not as the vector itself."""
    total: int = 0
    _reached: set[int] = field(default_factory=set)

    def count(self, cohort: list[int]) -> int:
        """The bytes of one round."""
        sent = 2 * self.vector_bytes * len(cohort)
        if self.once:
            new = set(cohort) - self._reached
            self._reached |= new
            sent += self.model_bytes * len(new)
        self.total += sent
        return sent
