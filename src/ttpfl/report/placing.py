"""Placement of labels so that they do not overlap."""

from collections.abc import Sequence

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


def spread_out(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Move places as little as needed to be `apart`, between `low` and `high`, and keep their order.

    >>> spread_out([50.0, 10.0, 11.0], apart=8, low=0, high=100)
    [50.0, 6.5, 14.5]
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    apart = min(apart, (high - low) / max(1, len(places) - 1))
    groups: list[list[float]] = []  # places that touch; each group is centred at its mean

    def start(group: list[float]) -> float:
        length = apart * (len(group) - 1)
        return min(max(sum(group) / len(group) - length / 2, low), high - length)

    for index in order:
        groups.append([places[index]])
        while len(groups) > 1 and start(groups[-2]) + apart * len(groups[-2]) > start(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    moved = [start(group) + apart * n for group in groups for n in range(len(group))]
    return [place for _, place in sorted(zip(order, moved, strict=True))]


def free_sides(points: Sequence[tuple[float, float]], widths: Sequence[float], area: Box) -> list[str | None]:
    """For each point, a side where its label overlaps nothing; None if every side is taken.

    >>> free_sides([(50, 50), (54, 50)], [20, 20], area=(0, 0, 100, 100))
    ['left', 'right']
    """
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    sides: list[str | None] = []
    for (x, y), width in zip(points, widths, strict=True):
        candidates: dict[str, Box] = {
            "right": (x + 7, y - 7, x + 7 + width, y + 7),
            "left": (x - 7 - width, y - 7, x - 7, y + 7),
            "above": (x - width / 2, y - 20, x + width / 2, y - 6),
            "below": (x - width / 2, y + 6, x + width / 2, y + 20),
        }
        free = (side for side, box in candidates.items() if _inside(box, area) and not _overlaps(box, taken))
        side = next(free, None)
        sides.append(side)
        if side is not None:
            taken.append(candidates[side])
    return sides


def _inside(box: Box, area: Box) -> bool:
    return box[0] >= area[0] and box[1] >= area[1] and box[2] <= area[2] and box[3] <= area[3]


def _overlaps(box: Box, others: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    return any(left < o[2] and o[0] < right and top < o[3] and o[1] < bottom for o in others)
