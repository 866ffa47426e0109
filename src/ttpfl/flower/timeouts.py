"""How long sites are waited for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Seconds."""

    deadline: float = 60.0
    """After half of the answers of a round are there; errors are not counted as answers."""
    longest: float = 3600.0
    """At any rate."""
    connect: float = 60.0
    """For all sites to be connected, before the first round."""
    quiet: float = 20.0
    """Until a site that has said nothing is nudged; a quarter of the deadline, if that is less."""

    @property
    def nudge_after(self) -> float:
        """Soon enough for three nudges: a site gets its task, the model, and the task again."""
        return min(self.quiet, self.deadline / 4)
