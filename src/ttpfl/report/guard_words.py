"""The verdict of guards in a terminal: where they stopped adaptation, and their estimates without labels."""

from collections.abc import Iterator
from statistics import fmean

from ttpfl.report.numbers import plain
from ttpfl.report.study import Study
from ttpfl.results.schema import MethodResult
from ttpfl.util.printable import counted


def guard_words(study: Study) -> Iterator[str]:
    """What to say about each method with a guard, over all runs."""
    entries = [entry for run in study.results["runs"] for entry in run["entries"] if "guard" in entry]
    for label in dict.fromkeys(entry["label"] for entry in entries):
        yield _verdict(label, [entry for entry in entries if entry["label"] == label])


def _verdict(label: str, entries: list[MethodResult]) -> str:
    alarms = [number for entry in entries for number in entry["guard"]["alarms"]]
    stopped, clients = sum(bool(number) for number in alarms), counted(len(alarms), "client")
    adaptation = f"stopped adaptation at {stopped} of {clients}" if stopped else f"let all {clients} adapt"
    pairs = [
        (100 * accuracy, 100 * estimate)
        for entry in entries
        for accuracy, estimate in zip(entry["accuracy"], entry["guard"]["estimate"], strict=True)
        if estimate is not None
    ]
    words = f"The guard of {label} {adaptation}."
    if pairs:
        estimated = plain(fmean(estimate for _, estimate in pairs))
        error = plain(fmean(abs(accuracy - estimate) for accuracy, estimate in pairs))
        words += (
            f" Without labels, it estimates an accuracy of {estimated} %, off by {error} points per client."
        )
    return words
