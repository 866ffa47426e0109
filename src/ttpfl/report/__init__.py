"""Results of a run as one page to look at: a self-contained HTML file, drawn from `results.json`."""

from os import PathLike
from pathlib import Path

from ttpfl.errors import ReportError
from ttpfl.files import written_in_one_step
from ttpfl.report.page import page
from ttpfl.report.reading import SAMPLES, read_json, results_file

__all__ = ["page", "write_report"]


def write_report(results_path: str | PathLike[str], out: str | PathLike[str] | None = None) -> Path:
    """Write the report of a `results.json`, or of the folder that holds one, and return its path.

    Args:
        results_path: the file or the folder; sample images are taken from `samples.json` beside the file.
        out: the HTML file; `report.html` beside the results if None.
    """
    path = results_file(Path(results_path))
    beside = path.with_name(SAMPLES)
    results, samples = read_json(path), read_json(beside) if beside.exists() else None
    try:
        content = page(results, samples)
    except ReportError as error:
        error.add_note(f"in {path.parent}")
        raise
    target = path.with_name("report.html") if out is None else Path(out)
    with written_in_one_step(target) as file:
        file.write(content.encode())
    return target
