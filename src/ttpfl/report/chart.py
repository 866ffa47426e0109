"""Charts as SVG that fills its box at any width.

Places from left to right are percentages and those from top to bottom are pixels, so that the text keeps its
size when the page becomes narrow. Texts of the axes lie outside of the SVG's box, in the padding of `.plot`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ttpfl.report.markup import Html, Node, element
from ttpfl.report.numbers import aligned
from ttpfl.report.scale import Scale

WIDE = 1000  # units of a path from left to right


@dataclass(frozen=True)
class Axis:
    """A scale with what is written at it."""

    scale: Scale
    title: str
    ticks: Sequence[float] | None = None
    """Round numbers if None."""

    def marks(self) -> list[tuple[float, str]]:
        """Values with their texts."""
        values = self.scale.ticks() if self.ticks is None else self.ticks
        return list(zip(values, aligned(values), strict=True))


@dataclass(frozen=True)
class Canvas:
    """Two axes, and marks at places on them."""

    x: Axis
    y: Axis
    height: int = 220

    def left(self, value: float) -> str:
        """The place of a value on the x axis."""
        return percent(self.x.scale(value))

    def top(self, value: float) -> float:
        """The place of a value on the y axis."""
        return self.height * (1 - self.y.scale(value))

    def point(self, x: float, y: float, label: str, class_: str = "", r: float = 4) -> Html:
        """A point that says `label` when it is pointed at or focused."""
        return element(
            "circle",
            class_=f"point {class_}".strip(),
            cx=self.left(x), cy=self.top(y), r=r,
            **said(label),
        )  # fmt: skip

    def path(self, points: Sequence[tuple[float, float]], class_: str) -> Html:
        """A line through points."""
        steps = (f"{WIDE * self.x.scale(x):.1f} {self.top(y):.1f}" for x, y in points)
        line = element("path", d="M" + "L".join(steps), class_=f"line {class_}")
        return stretched(line, WIDE, self.height, self.height)

    def drawn(self, title: str, description: str, *marks: Node, class_: str = "") -> Html:
        """The chart: grid, axes, and `marks` on top."""
        y_axis = element("g", self._y_axis(), class_="y-axis")
        return drawing(
            title, description, self.height, y_axis, self._x_axis_and_titles(), *marks, class_=class_
        )

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
    """An SVG in a box of its own; the title and the description are for those who do not see it."""
    svg = element(
        "svg",
        element("title", title),
        element("desc", description),
        *marks,
        width="100%", height=height, role="group",
    )  # fmt: skip
    return element("div", svg, class_=f"plot {class_}".strip())


def stretched(content: Node, width: float, height: float, pixels: float) -> Html:
    """Content in a coordinate system of its own that is stretched over the whole drawing."""
    return element(
        "svg", content,
        viewBox=f"0 0 {width:g} {height:g}", preserveAspectRatio="none",
        width="100%", height=pixels, class_="stretched",
    )  # fmt: skip


def beginning(*axes: Axis) -> str:
    """A remark for captions, where an axis of numbers that cannot be negative does not begin at zero."""
    return " The axis does not begin at zero." if any(axis.scale.low > 0 for axis in axes) else ""


def percent(fraction: float) -> str:
    """A place from left to right."""
    return f"{100 * fraction:.2f}%"


def said(label: str) -> dict[str, str]:
    """Attributes of a mark that says `label` when it is pointed at or focused."""
    return {"role": "img", "aria_label": label, "tabindex": "-1"}
