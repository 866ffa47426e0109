"""How long to wait for sites."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timeouts:
    """Timeouts in seconds."""

    deadline: float = 60.0
    """For the rest of a round, after half of the results have arrived; errors do not count."""
    longest: float = 3600.0
    """For a round."""
    connect: float = 60.0
    """For all sites to connect, before the first round."""
    quiet: float = 20.0
    """Until a silent site is pinged; a quarter of the deadline, if that is less."""

    @property
    def ping_after(self) -> float:
        """Soon enough for three pings: a site gets its task, the model, and the task again."""
        return min(self.quiet, self.deadline / 4)
