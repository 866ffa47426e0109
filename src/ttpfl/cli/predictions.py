"""Predictions as lines of text, each as soon as it is there."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ttpfl.files import written_in_one_step
from ttpfl.printable import printable

if TYPE_CHECKING:
    from ttpfl.folder_stream import Prediction

# Names of files may be any bytes; they are written as they were read.
ERRORS = "surrogateescape"
# Spreadsheets skip blanks before them, and take the full-width forms for the same.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


@contextmanager
def opened(out: Path | None) -> Iterator[TextIO]:
    """Stdout, or a file that is there once it is complete."""
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
    """A text that no spreadsheet takes for a formula: what begins like one gets an apostrophe.

    >>> cell("=1+1"), cell("cat")
    ("'=1+1", 'cat')
    """
    begins = text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(_FORMULA)
    return f"'{text}" if begins else text


def writer(
    stream: TextIO, classes: tuple[str, ...], probabilities: bool, as_json: bool
) -> "Callable[[Prediction], None]":
    """A function that writes a prediction: a JSON object, or a line of CSV under a header."""
    if as_json:

        def write_object(found: "Prediction") -> None:
            facts = {"path": found.path, "class": found.label, "confidence": round(found.confidence, 6)}
            if probabilities:
                rounded = (round(value, 6) for value in found.probabilities)
                facts["probabilities"] = dict(zip(classes, rounded, strict=True))
            print(json.dumps(facts), file=stream, flush=True)

        return write_object
    rows = csv.writer(stream, lineterminator="\n")
    # Whoever looks at a terminal gets no control characters; programs get names as they are.
    shown = printable if stream.isatty() else str
    names = [shown(cell(name)) for name in classes if probabilities]
    header = [["path", "class", "confidence", *names]]

    def write_row(found: "Prediction") -> None:
        if header:  # not before there is a first line: whatever fails leaves nothing behind
            rows.writerow(header.pop())
        values = (found.confidence, *(found.probabilities if probabilities else ()))
        texts = (shown(cell(text)) for text in (found.path, found.label))
        rows.writerow([*texts, *(f"{value:.6f}" for value in values)])
        stream.flush()

    return write_row
