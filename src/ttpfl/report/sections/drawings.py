"""Drawings of single samples: images, signals as lines, rows of tables as bars."""

import math

from ttpfl.errors import ReportError
from ttpfl.report.markup import Html, element
from ttpfl.report.png import png_address
from ttpfl.results.schema import Image

WIDTH, HEIGHT = 100.0, 60.0
REACH = 4.0  # standard deviations from the mean to the edge
SERIES = 5  # colours of lines; further channels use them again


def drawing(image: Image) -> Html:
    """The sample as an image or as a small chart of its normalised values."""
    label = image["label"]
    if "channels" in image:
        return _chart(_lines(image["channels"]), f"a signal of class {label}")
    if "features" in image:
        return _chart(_bars(image["features"]), f"a row of class {label}")
    size = image.get("size", [])
    height, width = size if len(size) == 2 else (0, 0)
    source = png_address(image.get("rgb", ""), height, width)
    return element("img", src=source, alt=f"an image of class {label}")


def things(images: list[Image]) -> str:
    """What the samples are called.

    >>> things([{"features": [1.0], "label": "a", "before": {}, "after": {}}])
    'rows'
    """
    names = {"channels": "signals", "features": "rows"}
    return next((name for key, name in names.items() if images and key in images[0]), "images")


def _chart(content: list[Html], words: str) -> Html:
    zero = element("line", x1=0, x2=WIDTH, y1=HEIGHT / 2, y2=HEIGHT / 2, class_="grid")
    box = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return element("svg", zero, content, viewBox=box, role="img", aria_label=words, class_="sample")


def _lines(channels: list[list[float]]) -> list[Html]:
    return [
        element("path", d=_path(values), class_="line", style=f"--tone:var(--s{1 + number % SERIES})")
        for number, values in enumerate(channels)
    ]


def _path(values: list[float]) -> str:
    step = WIDTH / max(1, len(values) - 1)
    points = [f"{step * place:.1f} {_top(value):.1f}" for place, value in enumerate(values)]
    return "M" + "L".join(points)


def _bars(features: list[float]) -> list[Html]:
    """A bar from the mean of the source clients to the value of each feature."""
    wide, middle = WIDTH / max(1, len(features)), HEIGHT / 2
    tops = [_top(value) for value in features]
    return [
        element(
            "rect", x=wide * place + 0.1 * wide, width=0.8 * wide, y=min(top, middle),
            height=abs(top - middle), class_="bar",
        )
        for place, top in enumerate(tops)
    ]  # fmt: skip


def _top(value: float) -> float:
    if not math.isfinite(value):
        raise ReportError("a sample in samples.json has values that are not finite: run the recipe again")
    return HEIGHT / 2 * (1 - max(-1.0, min(1.0, value / REACH)))
