"""Numbers as people read them. What is not there, or not finite, is a dash."""

import math
from collections.abc import Sequence

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"


def plain(value: float | None, digits: int = 2) -> str:
    """A fixed number of digits, with a real minus sign and no negative zero.

    >>> plain(71.5), plain(-0.001), plain(-2.0) == MINUS + "2.00", plain(None) == DASH
    ('71.50', '0.00', True, True)
    """
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{abs(value):.{digits}f}"
    return (MINUS if value < 0 and float(text) else "") + text


def signed(value: float | None, digits: int = 2) -> str:
    """The same with a plus sign.

    >>> signed(2.5), signed(0.0), signed(-0.4, 1) == MINUS + "0.4"
    ('+2.50', '0.00', True)
    """
    text = plain(value, digits)
    return f"+{text}" if text[0].isdigit() and float(text) else text


def ends(interval: tuple[float, float] | None, digits: int = 2) -> str:
    """Both ends of an interval of differences, or a dash where there is none.

    >>> ends((0.25, 1.5)), ends(None) == DASH
    ('+0.25 to +1.50', True)
    """
    return DASH if interval is None else " to ".join(signed(end, digits) for end in interval)


def share(value: float, digits: int = 2) -> str:
    """Percent; the sign stays on the number's line.

    >>> share(71.5).split()
    ['71.50', '%']
    """
    return f"{plain(value, digits)}\N{NO-BREAK SPACE}%"


def clipped(text: str, most: int) -> str:
    """Text for a place that cannot grow.

    >>> clipped("a long name", 7)
    'a long…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def short(value: float | None) -> str:
    """Three significant digits, for numbers of any size.

    >>> short(0.012345), short(12.0), short(0.0)
    ('0.0123', '12', '0')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3g}".replace("-", MINUS)


def aligned(values: Sequence[float]) -> list[str]:
    """Numbers of one axis: all with as many digits as the one that needs most.

    >>> aligned([0.0, 0.25, 0.5]), aligned([10.0, 20.0])
    (['0.00', '0.25', '0.50'], ['10', '20'])
    """
    digits = next((n for n in range(6) if all(abs(v - round(v, n)) < 1e-9 for v in values)), 6)
    return [plain(value, digits) for value in values]


def size(value: float) -> str:
    """Memory; single bytes are of no interest.

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
    """Time on the clock.

    >>> duration(0.2), duration(75), duration(4500)
    ('0.2 s', '1 min 15 s', '1 h 15 min')
    """
    if not math.isfinite(seconds):
        return DASH
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min" + f" {rest} s" * (rest > 0)
    return f"{minutes // 60} h {minutes % 60} min"


def listed(*parts: str | None) -> str:
    """Parts of a title, without those that are empty.

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
