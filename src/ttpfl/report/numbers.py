"""Numbers and lists as text. Missing and non-finite numbers become a dash."""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"

T = TypeVar("T")


def plain(value: float | None, digits: int = 2) -> str:
    """A number with fixed decimals, a real minus sign and no negative zero.

    >>> plain(71.5), plain(-0.001), plain(-2.0) == MINUS + "2.00", plain(None) == DASH
    ('71.50', '0.00', True, True)
    """
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{abs(value):.{digits}f}"
    return (MINUS if value < 0 and float(text) else "") + text


def signed(value: float | None, digits: int = 2) -> str:
    """Like `plain`, with a plus sign.

    >>> signed(2.5), signed(0.0), signed(-0.4, 1) == MINUS + "0.4"
    ('+2.50', '0.00', True)
    """
    text = plain(value, digits)
    return f"+{text}" if text[0].isdigit() and float(text) else text


def ends(interval: tuple[float, float] | None, digits: int = 2) -> str:
    """Both ends of an interval of differences.

    >>> ends((0.25, 1.5)), ends(None) == DASH
    ('+0.25 to +1.50', True)
    """
    return DASH if interval is None else " to ".join(signed(end, digits) for end in interval)


def percentage(value: float, digits: int = 2) -> str:
    """A number and a percent sign that stay on the same line.

    >>> percentage(71.5).split()
    ['71.50', '%']
    """
    return f"{plain(value, digits)}\N{NO-BREAK SPACE}%"


def clipped(text: str, length: int) -> str:
    """Text shortened to a length.

    >>> clipped("a long name", 7)
    'a long…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def short(value: float | None) -> str:
    """Three significant digits.

    >>> short(0.012345), short(12.0), short(0.0)
    ('0.0123', '12', '0')
    """
    return DASH if value is None or not math.isfinite(value) else f"{value:.3g}".replace("-", MINUS)


def aligned(values: Sequence[float]) -> list[str]:
    """Numbers of an axis, all with the decimals that the most precise one needs.

    >>> aligned([0.0, 0.25, 0.5]), aligned([10.0, 20.0])
    (['0.00', '0.25', '0.50'], ['10', '20'])
    """
    digits = next((n for n in range(6) if all(abs(v - round(v, n)) < 1e-9 for v in values)), 6)
    return [plain(value, digits) for value in values]


def size(value: float) -> str:
    """A number of bytes.

    >>> size(0), size(4), size(4_200), size(45_300_000)
    ('none', '< 1 kB', '4.2 kB', '45.3 MB')
    """
    if not math.isfinite(value):
        return DASH
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= bytes_:
            return f"{value / bytes_:.1f} {unit}"
    return "< 1 kB" if value else "none"


def duration(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration(0.23), duration(8), duration(75), duration(4500)
    ('0.2 s', '8 s', '1 min 15 s', '1 h 15 min')
    """
    if not math.isfinite(seconds):
        return DASH
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{round(seconds, 1):.2g} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def listed(*parts: str | None) -> str:
    """The non-empty parts of a title.

    >>> listed("target-3", None, "fog 2"), listed("", "seed 1")
    ('target-3, fog 2', 'seed 1')
    """
    return ", ".join(filter(None, parts))


def words(items: list[str]) -> str:
    """A list in a sentence.

    >>> words(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def merged(items: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Named values, with equal values merged under their joined names.

    >>> merged([("a", 1), ("b", 2), ("c", 1)])
    {'a, c': 1, 'b': 2}
    """
    groups: list[tuple[list[str], T]] = []
    for name, value in items:
        names = next((names for names, other in groups if other == value), None)
        if names is None:
            groups.append(([name], value))
        else:
            names.append(name)
    return {", ".join(names): value for names, value in groups}


def capital(text: str) -> str:
    """The text with a capital letter at its start.

    >>> capital("macro-F1")
    'Macro-F1'
    """
    return text[:1].upper() + text[1:]
