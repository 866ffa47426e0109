"""The results of a run as one self-contained HTML page."""

from os import PathLike
from pathlib import Path

from ttpfl.errors import ReportError
from ttpfl.report.page import page
from ttpfl.results.files import RESULTS, SAMPLES, read_json, results_file
from ttpfl.util.files import written_in_one_step

__all__ = ["page", "write_report"]


def write_report(results_path: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """Write the report of a `results.json`, or of the folder that contains it, and return its path.

    Args:
        results_path: The file or folder. Sample images come from the run's `samples.json` next to it.
        out: The HTML file. By default, `report.html` next to `results.json`, `NAME.html` next to `NAME.json`.
    """
    path = results_file(Path(results_path))
    is_run, samples_path = path.name == RESULTS, path.with_name(SAMPLES)
    samples = read_json(samples_path) if is_run and samples_path.exists() else None
    try:
        content = page(read_json(path), samples)
    except ReportError as error:
        error.add_note(f"in {path.parent}")
        raise
    default = path.with_name("report.html") if is_run else path.with_suffix(".html")
    target = default if out is None else Path(out)
    with written_in_one_step(target) as file:
        file.write(content.encode("utf-8", "backslashreplace"))  # file names need not be UTF-8
    return target
