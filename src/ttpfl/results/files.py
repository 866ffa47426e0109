"""Files of results: written in one step with a checksum, and read only if they hang together."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ttpfl.errors import ReportError
from ttpfl.results.earlier import as_run, is_comparison
from ttpfl.results.schema import FORMAT, METRICS, UNSEALED, Results, Run, Samples, ToyExample
from ttpfl.util import reading
from ttpfl.util.checksum import CHECKSUM, is_sound, sealed, warn_of_old_format
from ttpfl.util.files import written_in_one_step
from ttpfl.util.settings_kit import TYPES, Rule, as_type

RESULTS, SAMPLES = "results.json", "samples.json"


def _is_figure(value: Any) -> bool:
    """A number that is infinite or NaN is one, as of a run that diverged; no count is above 2^63."""
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


_TYPES = {
    **TYPES,
    int: Rule("an integer", lambda value: type(value) is int and _is_figure(value)),
    float: Rule("a number", _is_figure),
}


def write(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """JSON with a checksum, in one step; what a reader gets is returned."""
    whole = sealed(content)
    with written_in_one_step(path) as file:
        file.write(json.dumps(whole).encode())
    return whole


def load(path: Path) -> Results:
    """A file of results, or that in the folder of a run."""
    file = results_file(path)
    return checked_results(read_json(file), str(file))


def load_all(paths: Iterable[Path]) -> list[Results]:
    """Files of results in order; a folder stands for all in it and in the folders of runs below it."""
    return [load(file) for path in paths for file in _files(path)]


def _files(path: Path) -> list[Path]:
    if not path.is_dir() or (path / RESULTS).exists():
        return [path]
    found = [file for file in sorted(path.glob("*.json")) if file.name != SAMPLES]
    found += sorted(path.glob(f"*/{RESULTS}"))
    if not found:
        raise ReportError(f"{path} holds no results: name a {RESULTS}, or a folder with finished runs")
    return found


def results_file(run: Path) -> Path:
    """The file of results that `run` is, or holds."""
    path = run / RESULTS if run.is_dir() else run
    if not path.is_file():
        raise ReportError(f"{path} is not there: name a {RESULTS}, or the folder of a finished run")
    return path


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        found = reading.read_json(path)
    except ValueError as error:
        raise ReportError(f"{path} is not sound JSON ({error}): make it again") from None
    if isinstance(found, dict) and found.get("format") == UNSEALED and CHECKSUM not in found:
        warn_of_old_format(str(path))
    return found


def checked_results(value: object, place: str = RESULTS) -> Results:
    """`value` as results, or a ReportError."""
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
        found = [entry["label"] for entry in run["entries"]]
        if found != labels.setdefault(run["case"], found):
            odd = sorted(set(found) ^ set(labels[run["case"]])) or found
            raise ReportError(f"{where} (case {run['case']}) has not the entries of the case's first: {odd}")
    _check_once([f"case {run['case']} with seed {run['seed']}" for run in results["runs"]], place)
    _check_paper(results, place)
    return results


def checked_samples(value: object, place: str = SAMPLES) -> Samples:
    """`value` as samples, or a ReportError."""
    _check_format(value, place)
    as_type(place, value, Samples, ReportError, _TYPES)
    return cast(Samples, value)


def _check_format(value: object, place: str) -> None:
    if not isinstance(value, dict) or "format" not in value:
        return  # its shape says so
    if value["format"] not in (UNSEALED, FORMAT) or isinstance(value["format"], bool):
        raise ReportError(
            f"{place} has format {value['format']!r}; this version reads {UNSEALED} and {FORMAT}"
        )
    if (value["format"] == FORMAT or CHECKSUM in value) and not is_sound(value):
        raise ReportError(f"{place} is damaged (its checksum does not match): make it again")


def _check_run(run: Run, place: str) -> None:
    clients = len(run["clients"])
    if not clients or not run["entries"]:
        raise ReportError(f"{place} has no {'entries' if clients else 'clients'}: the run is not finished")
    _check_once([f"client {client['id']}" for client in run["clients"]], place)
    _check_once([f"entry {entry['label']}" for entry in run["entries"]], place)
    if "toy" in run:
        _check_toy(run["toy"], f"{place}.toy")
    for client in run["clients"]:
        if len(client["labels"]) != len(run["population"]["classes"]):
            raise ReportError(f"{place}: client {client['id']} has not one count for each class")
    for entry in run["entries"]:
        figures = cast(dict[str, list[float | None]], entry)
        for name in METRICS:
            if len(figures[name]) != clients:
                raise ReportError(
                    f"{place}: {name} of {entry['label']} has {len(figures[name])} figures "
                    f"for {clients} clients"
                )
        for value in entry["accuracy"]:
            if not 0 <= value <= 1:  # NaN is neither
                raise ReportError(f"{place}: an accuracy of {entry['label']} is {value}, not in 0 to 1")
        for module in entry["rates"]["modules"] if entry["rates"] else ():
            if not math.isfinite(module["rate"]):
                raise ReportError(f"{place}: the rate of {module['name']} is {module['rate']}")


def _check_toy(toy: ToyExample, place: str) -> None:
    found = toy["histograms"]
    counts, bins = [*found["before"].values(), *found["after"]], len(found["edges"]) - 1
    sound = bins > 0 and toy["alphas"] and len(found["after"]) == len(toy["alphas"])
    sound = sound and found["before"].keys() == {"training", "testing"}
    if not sound or any(one.keys() != {"-", "+"} or {*map(len, one.values())} != {bins} for one in counts):
        raise ReportError(f"{place} has not one count for each class, bin and rate")
    if "norm.running_mean" not in toy["learned"]["rates"]:
        raise ReportError(f"{place} has no learned rate of norm.running_mean")
    rates = [line["alpha"] for line in (*toy["alphas"], toy["best"])]
    if not all(map(math.isfinite, [*rates, *found["edges"], *toy["learned"]["rates"].values()])):
        raise ReportError(f"{place} has numbers that are not finite")


def _check_once(names: list[str], place: str) -> None:
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise ReportError(f"{place} has {name} {times} times")


def _check_paper(results: Results, place: str) -> None:
    for label, cases in results["paper"].items():
        for case, figures in cases.items():
            if not 1 <= len(figures) <= 2:
                where = f"{place}.paper.{label}.{case}"
                raise ReportError(f"{where} is {figures}, but should be [mean] or [mean, sd]")
