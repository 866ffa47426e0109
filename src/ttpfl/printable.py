"""Text from elsewhere on a terminal: nothing in it may move the cursor, change colours or hide text."""

import re

# Controls (C0, DEL, C1), marks that reorder text, and halves of surrogate pairs, which cannot be encoded.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with control characters as escapes that can be read; only newlines and tabs stay.

    >>> print(printable("north\x1b[2J \u202e"))
    north\u001b[2J \u202e
    """
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
