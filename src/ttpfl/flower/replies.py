"""Who has answered, and how long to wait for the others. Knows no network and no clock."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Messages of a run that were not as they should be."""

    late: int = 0
    """Answers that came after their round was over."""
    duplicate: int = 0
    """Further answers to a message that was answered already, or never sent."""


@dataclass
class Waiting:
    """The messages of one round that are on their way.

    The round ends `deadline` seconds after half of the answers are there, and after `longest` at any rate.
    An error is no answer: whoever refuses does so at once, which says nothing about how long the work takes.

    >>> waiting = Waiting({"m1", "m2", "m3"}, deadline=60, longest=3600)
    >>> waiting.answered("m1", at=5.0), waiting.answered("m1", at=6.0)
    (True, False)
    >>> waiting.end  # one of three: nobody knows yet how long it takes
    3600
    >>> waiting.answered("m2", at=8.0), waiting.end
    (True, 68.0)
    """

    messages: set[str]
    deadline: float
    longest: float
    times: dict[str, float] = field(default_factory=dict)
    """Of answers."""
    errors: set[str] = field(default_factory=set)
    """Messages that there will be no answer to."""

    @property
    def open(self) -> set[str]:
        """Messages that nothing has come back for."""
        return self.messages - self.times.keys() - self.errors

    @property
    def end(self) -> float:
        """When the round is over, in seconds after it began."""
        half = (len(self.messages) - len(self.errors) + 1) // 2
        if not half or len(self.times) < half:
            return self.longest
        return min(sorted(self.times.values())[half - 1] + self.deadline, self.longest)

    def answered(self, message: str, at: float, error: bool = False) -> bool:
        """Note an answer or an error; False if it is not the first to a message of this round."""
        if message not in self.open:
            return False
        if error:
            self.errors.add(message)
        else:
            self.times[message] = at
        return True


def count_strays(strays: Iterable[str], given_up: set[str], counts: Counts) -> None:
    """Count answers that belong to no open message: `given_up` are those of earlier rounds.

    >>> counts, given_up = Counts(), {"m9"}
    >>> count_strays(["m9", "m9"], given_up, counts)
    >>> counts, given_up
    (Counts(late=1, duplicate=1), set())
    """
    for message in strays:
        if message in given_up:
            given_up.discard(message)
            counts.late += 1
        else:
            counts.duplicate += 1
