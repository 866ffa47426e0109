"""Every new client before and after adaptation, as an SVG picture for other pages.

It has no background, and its colours are readable on white and on black.
"""

from collections.abc import Iterator

from ttpfl.errors import ReportError
from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.markup import Html, Node, element
from ttpfl.report.numbers import capital
from ttpfl.report.scale import Scale, covering
from ttpfl.results.comparison import Comparison
from ttpfl.results.files import checked_results
from ttpfl.results.runs import entry_of
from ttpfl.results.schema import HEADLINES, Results, Run

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 340, 54, 64, 52
TEXT, GRID, GAIN, HARM = "#7a838d", "#8b949e", "#2a8fd6", "#d9702a"
LETTER = 7.5  # its width, at most
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', Arial, sans-serif"


def picture(results: object, method: str = "atp-online") -> Html:
    """Draw the clients of a `results.json`: a ring and a dot for each, sorted by the ring.

    They are those of the first seed, in all cases if each has clients of its own, else in the first case.
    """
    runs = _runs(checked_results(results))
    before, after = _percent(runs, BASELINE), _percent(runs, method)
    scale = covering([*before, *after])
    means = f"on average {_mean(before)} before, {_mean(after)} after"
    title = f"{_metric(runs[0])} at {len(before)} new clients: {means}"
    harmed = sum(a < b for b, a in zip(before, after, strict=True))
    return element(
        "svg",
        element("title", title),
        element("text", title, x=LEFT, y=20, font_size=15, font_weight=600),
        _legend(method, harmed),
        _axis(scale),
        _clients(scale, _names(runs), before, after),
        element("text", "new client", x="50%", y=HEIGHT - 8, text_anchor="middle"),
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img",
        font_family=FONT, font_size=13, fill=TEXT,
    )  # fmt: skip


def _metric(run: Run) -> str:
    return capital(HEADLINES[Comparison(run).headline])


def _runs(results: Results) -> list[Run]:
    first, *others = [run for run in results["runs"] if run["seed"] == results["runs"][0]["seed"]]
    names = [client["id"] for run in (first, *others) for client in run["clients"]]
    return [first, *others] if len({*names}) == len(names) else [first]


def _percent(runs: list[Run], label: str) -> list[float]:
    for run in runs:
        if entry_of(run, label) is None:
            labels = ", ".join(entry["label"] for entry in run["entries"])
            raise ReportError(f"the run has no method {label!r} to draw; it has: {labels}")
    return [100 * value for run in runs for value in Comparison(run).of(label)]


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.1f} %"


def _legend(method: str, harmed: int) -> Iterator[Node]:
    x = LEFT + 6.0
    for text, mark in (
        ("no adaptation", _ring(0, 42)),
        (f"{method}, better", _dot(0, 42, GAIN)),
        (f"{method}, worse ({harmed})", _dot(0, 42, HARM)),
    ):
        yield element("g", mark, element("text", text, x=12, y=46), transform=f"translate({x:g})")
        x += 36 + LETTER * len(text)


def _axis(scale: Scale) -> Iterator[Node]:
    for tick in scale.ticks():
        y = _y(scale, tick)
        yield element("line", x1=LEFT, x2=WIDTH, y1=y, y2=y, stroke=GRID, stroke_opacity=0.35)
        yield element("text", f"{tick:g} %", x=LEFT - 8, y=y + 4, text_anchor="end")


def _names(runs: list[Run]) -> list[str]:
    """The clients' names, without what generated ones have in common; their numbers if there is no room."""
    names = [client["id"].removeprefix("target-") for run in runs for client in run["clients"]]
    room = (WIDTH - LEFT) / len(names) / LETTER
    return names if max(map(len, names)) < room else [str(number) for number in range(len(names))]


def _clients(scale: Scale, names: list[str], before: list[float], after: list[float]) -> Iterator[Node]:
    for place, number in enumerate(sorted(range(len(before)), key=before.__getitem__)):
        x = LEFT + (place + 0.5) * (WIDTH - LEFT) / len(before)
        low, high = _y(scale, before[number]), _y(scale, after[number])
        colour = HARM if after[number] < before[number] else GAIN
        yield element("line", x1=x, x2=x, y1=low, y2=high, stroke=colour, stroke_width=2.5)
        yield _ring(x, low)
        yield _dot(x, high, colour)
        yield element("text", names[number], x=x, y=HEIGHT - BOTTOM + 22, text_anchor="middle")


def _y(scale: Scale, value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - scale(value))


def _ring(x: float, y: float) -> Html:
    return element("circle", cx=x, cy=y, r=5, fill="none", stroke=GRID, stroke_width=2)


def _dot(x: float, y: float, colour: str) -> Html:
    return element("circle", cx=x, cy=y, r=6, fill=colour)
