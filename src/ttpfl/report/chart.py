"""SVG charts that fill their box at any width.

Horizontal positions are percentages and vertical ones pixels, so that text keeps its size on a narrow page.
Axis labels lie outside the SVG's box, in the padding of `.plot`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttpfl.report.markup import Html, Node, element
from ttpfl.report.numbers import aligned
from ttpfl.report.scale import Scale

PATH_WIDTH = 1000  # units of a path from left to right


@dataclass(frozen=True)
class Axis:
    """A scale with its title and ticks."""

    scale: Scale
    title: str
    ticks: Sequence[float] | None = None
    """Round numbers if None."""

    def marks(self) -> list[tuple[float, str]]:
        """Ticks with their labels."""
        values = self.scale.ticks() if self.ticks is None else self.ticks
        return list(zip(values, aligned(values), strict=True))


@dataclass(frozen=True)
class Canvas:
    """Two axes to draw on."""

    x: Axis
    y: Axis
    height: int = 220

    def left(self, value: float) -> str:
        """Position of a value on the x axis."""
        return percent(self.x.scale(value))

    def top(self, value: float) -> float:
        """Position of a value on the y axis."""
        return self.height * (1 - self.y.scale(value))

    def point(self, x: float, y: float, label: str, class_: str = "", r: float = 4) -> Html:
        """A point with a tooltip."""
        class_ = f"point {class_}".strip()
        return element("circle", class_=class_, cx=self.left(x), cy=self.top(y), r=r, **tooltip(label))

    def path(self, points: Sequence[tuple[float, float]], class_: str) -> Html:
        """A line through points."""
        places = (f"{PATH_WIDTH * self.x.scale(x):.1f} {self.top(y):.1f}" for x, y in points)
        line = element("path", d="M" + "L".join(places), class_=f"line {class_}")
        return stretched(line, PATH_WIDTH, self.height, self.height)

    def drawn(self, title: str, description: str, *marks: Node, class_: str = "") -> Html:
        """The chart: grid, axes, and `marks` on top."""
        axes = [element("g", self._y_axis(), class_="y-axis"), *self._x_axis_and_titles()]
        return drawing(title, description, self.height, axes, *marks, class_=class_)

    def _y_axis(self) -> Iterator[Html]:
        for value, text in self.y.marks():
            y = self.top(value)
            yield element("line", class_="grid", x1="0", x2="100%", y1=y, y2=y)
            yield element("text", text, class_="tick end", x=-8, y=y + 4)

    def _x_axis_and_titles(self) -> Iterator[Html]:
        for value, text in self.x.marks():
            yield element("text", text, class_="tick middle", x=self.left(value), y=self.height + 18)
        yield element("line", class_="base", x1="0", x2="100%", y1=self.height, y2=self.height)
        yield element("text", self.x.title, class_="axis middle", x="50%", y=self.height + 36)
        yield element("text", self.y.title, class_="axis", x=-40, y=-12)


def drawing(title: str, description: str, height: float, *marks: Node, class_: str = "") -> Html:
    """An SVG in a box, with a title and a description for screen readers."""
    texts = [element("title", title), element("desc", description)]
    svg = element("svg", texts, *marks, width="100%", height=height, role="group")
    return element("div", svg, class_=f"plot {class_}".strip())


def stretched(content: Node, width: float, height: float, pixels: float) -> Html:
    """Content whose coordinate system is stretched over the whole drawing."""
    return element(
        "svg", content,
        viewBox=f"0 0 {width:g} {height:g}", preserveAspectRatio="none",
        width="100%", height=pixels, class_="stretched",
    )  # fmt: skip


def axis_note(*axes: Axis) -> str:
    """A note for captions if an axis of non-negative numbers does not start at zero."""
    return " The axis does not start at zero." if any(axis.scale.low > 0 for axis in axes) else ""


def percent(fraction: float) -> str:
    """A horizontal position."""
    return f"{100 * fraction:.2f}%"


def tooltip(label: str) -> dict[str, str]:
    """Attributes of a mark that shows `label` when hovered over or focused."""
    return {"role": "img", "aria_label": label, "tabindex": "-1"}
