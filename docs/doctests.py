"""Turn doctest examples into code blocks; in plain Markdown, `>>>` would be a quotation."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.S | re.M)


class Doctests(griffe.Extension):
    """Called for every object in the reference."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        """Add fences around the examples."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
