"""Safe output of untrusted text, and counts with their nouns."""

from unicodedata import category

# Control characters, invisible characters, marks that reorder text, halves of surrogate pairs (which cannot
# be encoded), and Unicode's line separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Escape control and invisible characters, except those in `keep`.

    >>> print(printable("north\x1b[2J \u202e"))
    north\u001b[2J \u202e
    """
    return "".join(_escape(char) if char not in keep and category(char) in _HIDDEN else char for char in text)


def one_line(text: str) -> str:
    r"""Escape control and invisible characters including line breaks, for logs.

    >>> print(one_line("full\nround 3: all is well"))
    full\u000around 3: all is well
    """
    return printable(text, keep="")


def _escape(character: str) -> str:
    """Escape as in JSON: characters beyond four digits become a surrogate pair."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def counted(number: int, noun: str) -> str:
    """A number with its noun in singular or plural.

    >>> counted(1, "round"), counted(200, "round")
    ('1 round', '200 rounds')
    """
    return f"{number} {noun}" + "s" * (number != 1)
