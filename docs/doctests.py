"""Examples in docstrings become blocks of code; as plain Markdown, `>>>` would be quotations."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.S | re.M)


class Doctests(griffe.Extension):
    """Called for every object that the reference shows."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        """Put fences around the examples."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
