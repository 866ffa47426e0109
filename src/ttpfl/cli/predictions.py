"""Predictions as lines of text, written one by one."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ttpfl.util.files import written_in_one_step
from ttpfl.util.printable import printable

if TYPE_CHECKING:
    from ttpfl.folder_stream import Prediction

# File names may be any bytes, and are written as they were read.
ERRORS = "surrogateescape"
# Spreadsheets skip blanks before these characters, and accept the full-width forms.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


@contextmanager
def opened(out: Path | None) -> Iterator[TextIO]:
    """Stdout, or a file that appears once it is complete."""
    if out is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=ERRORS)
        yield sys.stdout
        return
    with written_in_one_step(out) as file:
        text = io.TextIOWrapper(file, "utf-8", errors=ERRORS, newline="")
        yield text
        text.detach()


def cell(text: str) -> str:
    """The text, with an apostrophe if it looks like a spreadsheet formula.

    >>> cell("=1+1"), cell("cat")
    ("'=1+1", 'cat')
    """
    is_formula = text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(_FORMULA)
    return f"'{text}" if is_formula else text


def writer(
    stream: TextIO, classes: tuple[str, ...], probabilities: bool, as_json: bool
) -> "Callable[[Prediction, str | None], None]":
    """A function that writes a prediction, and the model that answered it, as a JSON object or as CSV.

    CSV has a header; without a choice between models, there is no column for the model.
    """
    rows = csv.writer(stream, lineterminator="\n")
    # Terminals get no control characters; programs get names as they are.
    shown = printable if stream.isatty() else str
    header = [["path", "class", "confidence", *(shown(cell(name)) for name in classes if probabilities)]]

    def write_object(prediction: "Prediction", model: str | None) -> None:
        line: dict[str, Any] = {"path": prediction.path, "class": prediction.label}
        line["confidence"] = round(prediction.confidence, 6)
        if probabilities:
            rounded = (round(value, 6) for value in prediction.probabilities)
            line["probabilities"] = dict(zip(classes, rounded, strict=True))
        if model is not None:
            line["model"] = model
        print(json.dumps(line), file=stream, flush=True)

    def write_row(prediction: "Prediction", model: str | None) -> None:
        chosen = [] if model is None else [model]
        if header:  # with the first row, so that a failure leaves nothing behind
            rows.writerow([*header.pop(), *("model" for _ in chosen)])
        texts = (shown(cell(text)) for text in (prediction.path, prediction.label))
        values = (prediction.confidence, *(prediction.probabilities if probabilities else ()))
        rows.writerow([*texts, *(f"{value:.6f}" for value in values), *chosen])
        stream.flush()

    return write_object if as_json else write_row
