"""`--set key=value`: what a user changes about a recipe."""

import re
from collections.abc import Iterator
from typing import Any

from ttpfl.errors import RecipeError
from ttpfl.experiment.config import Tree
from ttpfl.util.reading import toml_or_text

Keys = tuple[str, ...]
"""The way to a value through tables."""


def parsed(text: str) -> Tree:
    """One `--set` as a tree; names with dots or equals signs stand in quotation marks.

    >>> parsed('cases."batch=5".data.shift=label')
    {'cases': {'batch=5': {'data': {'shift': 'label'}}}}
    """
    found = re.fullmatch(r'((?:"[^"]*"|[^"=])+)=(.*)', text.strip(), re.S)
    if found is None or not found[1].strip():
        raise RecipeError(f"--set {text}: it takes the form key=value, such as train.rounds=10")
    value = toml_or_text(found[2].strip())
    for quoted, plain in reversed(re.findall(r'(?:^|\.)\s*(?:"([^"]*)"|([^."]*))', found[1].strip())):
        value = {quoted or plain.strip(): value}
    return dict(value)


def leaves(tree: Tree, above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every value with the keys that lead to it."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def says(tree: Any, path: Keys) -> bool:
    """Whether there is anything at the end of this way."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True
