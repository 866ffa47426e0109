"""Text for people: from elsewhere, so that nothing in it moves the cursor or hides; and counts in words."""

from unicodedata import category

# Controls, invisible characters and marks that reorder text, halves of surrogate pairs (which cannot be
# encoded), and Unicode's own separators of lines.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str, keep: str = "\n\t") -> str:
    r"""The text with control and invisible characters as escapes that can be read, but for those in `keep`.

    >>> print(printable("north\x1b[2J \u202e"))
    north\u001b[2J \u202e
    """
    return "".join(_escape(one) if one not in keep and category(one) in _HIDDEN else one for one in text)


def one_line(text: str) -> str:
    r"""The same for a text that must stay on its line, such as one of a log.

    >>> print(one_line("full\nround 3: all is well"))
    full\u000around 3: all is well
    """
    return printable(text, keep="")


def _escape(character: str) -> str:
    """As JSON and Python write it; beyond four digits JSON has the two halves of a surrogate pair."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def counted(number: int, noun: str) -> str:
    """A number of things in words.

    >>> counted(1, "round"), counted(200, "round")
    ('1 round', '200 rounds')
    """
    return f"{number} {noun}" + "s" * (number != 1)
