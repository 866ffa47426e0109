"""Reading, checking and writing files of results."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ttpfl.errors import ReportError
from ttpfl.results.earlier import as_run, is_comparison
from ttpfl.results.schema import (
    FORMAT,
    HEADLINES,
    METRICS,
    UNSEALED,
    Paper,
    Results,
    Run,
    Samples,
    ToyExample,
)
from ttpfl.util import reading
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.settings_kit import TYPES, Rule, as_type, check_known

RESULTS, SAMPLES = "results.json", "samples.json"


def _is_figure(value: Any) -> bool:
    """Infinite and NaN numbers of diverged runs are valid; integers have at most 64 bits."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


_TYPES = {
    **TYPES,
    int: Rule("an integer", lambda value: type(value) is int and _is_figure(value)),
    float: Rule("a number", _is_figure),
}


def write(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write JSON with a checksum atomically, and return its content."""
    sealed_content = sealed(content)
    with written_in_one_step(path) as file:
        file.write(json.dumps(sealed_content, separators=(",", ":")).encode())
    return sealed_content


def load(path: Path) -> Results:
    """Load a file of results, or that in the folder of a run."""
    file = results_file(path)
    return checked_results(read_json(file), str(file))


def load_all(paths: Iterable[Path]) -> list[Results]:
    """Load files of results in order; a folder stands for all files in it and in its runs' folders."""
    return [load(file) for path in paths for file in _files(path)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir() or (path / RESULTS).exists():
        return [path]
    files = [file for file in sorted(path.glob("*.json")) if file.name != SAMPLES]
    files += sorted(path.glob(f"*/{RESULTS}"))
    if not files:
        raise ReportError(f"{path} contains no results: name a {RESULTS}, or a folder with finished runs")
    return files


def results_file(run: Path) -> Path:
    """The file of results that `run` is or contains."""
    path = run / RESULTS if run.is_dir() else run
    if not path.is_file():
        raise ReportError(f"{path} does not exist: name a {RESULTS}, or the folder of a finished run")
    return path


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        content = reading.read_json(path)
    except ValueError as error:
        raise ReportError(f"{path} is not valid JSON ({error}): create it again") from None
    if isinstance(content, dict) and content.get("format") == UNSEALED and CHECKSUM not in content:
        warn_of_old_format(str(path))
    return content


def checked_results(value: object, place: str = RESULTS) -> Results:
    """Check results; an error is a ReportError."""
    _check_format(value, place)
    if is_comparison(value):
        value = as_run(cast(Mapping[str, Any], value), place)
    as_type(place, value, Results, ReportError, _TYPES)
    results = cast(Results, value)
    if not results["runs"]:
        raise ReportError(f"{place} has no runs: nothing to report yet")
    labels: dict[str, list[str]] = {}
    for number, run in enumerate(results["runs"]):
        where = f"{place}.runs[{number}]"
        _check_run(run, where)
        run_labels = [entry["label"] for entry in run["entries"]]
        if run_labels != labels.setdefault(run["case"], run_labels):
            differing = sorted(set(run_labels) ^ set(labels[run["case"]])) or run_labels
            raise ReportError(
                f"{where} and the first run of case {run['case']} differ in entries: {differing}"
            )
    _check_distinct([f"case {run['case']} with seed {run['seed']}" for run in results["runs"]], place)
    as_type(f"{place}.paper", results["paper"], Paper, ReportError, _TYPES)
    return results


def checked_samples(value: object, place: str = SAMPLES) -> Samples:
    """Check samples; an error is a ReportError."""
    _check_format(value, place)
    as_type(place, value, Samples, ReportError, _TYPES)
    return cast(Samples, value)


def _check_format(value: object, place: str) -> None:
    if not isinstance(value, dict) or "format" not in value:
        return  # the check of types reports it
    if value["format"] not in (UNSEALED, FORMAT) or isinstance(value["format"], bool):
        raise ReportError(
            f"{place} has format {value['format']!r}; this version reads {UNSEALED} and {FORMAT}"
        )
    if (value["format"] == FORMAT or CHECKSUM in value) and not is_sound(value):
        raise ReportError(f"{place} is damaged (its checksum does not match): create it again")


def _check_run(run: Run, place: str) -> None:
    clients = len(run["clients"])
    if not clients or not run["entries"]:
        raise ReportError(f"{place} has no {'entries' if clients else 'clients'}: the run is not finished")
    _check_distinct([f"client {client['id']}" for client in run["clients"]], place)
    _check_distinct([f"entry {entry['label']}" for entry in run["entries"]], place)
    check_known("headline", run.get("headline", "accuracy"), HEADLINES, ReportError, f"of {place}")
    if "toy" in run:
        _check_toy(run["toy"], f"{place}.toy")
    labels = [entry["label"] for entry in run["entries"]]
    for order, entries in run.get("orders", {}).items():
        if [entry["label"] for entry in entries] != labels:
            raise ReportError(f"{place}: the entries in the order {order} are not those of the run")
    for client in run["clients"]:
        if len(client["labels"]) != len(run["population"]["classes"]):
            raise ReportError(f"{place}: client {client['id']} does not have one count for each class")
    for entry in [*run["entries"], *(entry for other in run.get("orders", {}).values() for entry in other)]:
        columns = cast(dict[str, list[float | None]], entry)
        for name in METRICS:
            if name in columns and (count := len(columns[name])) != clients:
                raise ReportError(
                    f"{place}: {name} of {entry['label']} has {count} figures for {clients} clients"
                )
        for name, column in entry.get("guard", {}).items():
            if len(cast(list[Any], column)) != clients:
                raise ReportError(f"{place}: {name} of the guard of {entry['label']} is not for all clients")
            if not all(value is not None and math.isfinite(value) for value in cast(list[Any], column)):
                raise ReportError(f"{place}: {name} of the guard of {entry['label']} is not always a number")
        for value in columns.get(run.get("headline", "accuracy"), [None]):
            if value is None or not 0 <= value <= 1:  # also NaN
                raise ReportError(f"{place}: an accuracy of {entry['label']} is {value}, not in 0 to 1")
        for module in entry["rates"]["modules"] if entry["rates"] else ():
            if not math.isfinite(module["rate"]):
                raise ReportError(f"{place}: the rate of {module['name']} is {module['rate']}")


def _check_toy(toy: ToyExample, place: str) -> None:
    histograms = toy["histograms"]
    bins = len(histograms["edges"]) - 1
    valid = bins > 0 and toy["alphas"] and len(histograms["after"]) == len(toy["alphas"])
    valid = valid and histograms["before"].keys() == {"training", "testing"}
    for counts in [*histograms["before"].values(), *histograms["after"]]:
        valid = valid and counts.keys() == {"-", "+"} and {*map(len, counts.values())} == {bins}
    if not valid:
        raise ReportError(f"{place} does not have one count for each class, bin and rate")
    if "norm.running_mean" not in toy["learned"]["rates"]:
        raise ReportError(f"{place} has no learned rate of norm.running_mean")
    rates = [line["alpha"] for line in (*toy["alphas"], toy["best"])]
    if not all(map(math.isfinite, [*rates, *histograms["edges"], *toy["learned"]["rates"].values()])):
        raise ReportError(f"{place} has numbers that are not finite")


def _check_distinct(names: list[str], place: str) -> None:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ReportError(f"{place} has {name} {times} times")
