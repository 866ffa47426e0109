"""The tallies of all clients in a round."""

from ttpfl.federation.state import Record, Report
from ttpfl.tally import Tally


class Tallies:
    """The tallies of all clients in a round, by what they are of.

    >>> tallies = Tallies()
    >>> tallies.add({"train": {"samples": 4, "loss": 2.0, "right": 3}})
    >>> tallies.summary()
    {'train_loss': 0.5, 'train_accuracy': 0.75}
    >>> tallies.add({"train": {"samples": 4, "loss": 6.0, "right": None}})  # no classification
    >>> tallies.summary()
    {'train_loss': 1.0}
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tally] = {}

    def add(self, report: Report) -> None:
        """One client's report."""
        for name, tally in report.items():
            self._sums.setdefault(name, Tally()).join(
                **tally
            )  # messages have no None: `right` may be missing

    def summary(self) -> Record:
        """Means over all samples."""
        record: Record = {}
        for name, total in self._sums.items():
            record |= total.figures(name)
        return record
