"""Results of a run as one page to look at: a self-contained HTML file, drawn from `results.json`."""

from os import PathLike
from pathlib import Path

from ttpfl.errors import ReportError
from ttpfl.report.page import page
from ttpfl.results.files import RESULTS, SAMPLES, read_json, results_file
from ttpfl.util.files import written_in_one_step

__all__ = ["page", "write_report"]


def write_report(results_path: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """Write the report of a `results.json`, or of the folder that holds one, and return its path.

    Args:
        results_path: the file or the folder; of a run, sample images are taken from `samples.json` beside it.
        out: the HTML file; `report.html` beside a run's `results.json`, and `NAME.html` beside a `NAME.json`,
            if None.
    """
    path = results_file(Path(results_path))
    of_a_run, beside = path.name == RESULTS, path.with_name(SAMPLES)
    results, samples = read_json(path), read_json(beside) if of_a_run and beside.exists() else None
    try:
        content = page(results, samples)
    except ReportError as error:
        error.add_note(f"in {path.parent}")
        raise
    default = path.with_name("report.html") if of_a_run else path.with_suffix(".html")
    target = default if out is None else Path(out)
    with written_in_one_step(target) as file:
        file.write(content.encode("utf-8", "backslashreplace"))  # names of files may not be UTF-8
    return target
