"""`--set key=value`: changes to a recipe."""

import re
from collections.abc import Iterator
from typing import Any

from ttpfl.errors import RecipeError
from ttpfl.experiment.config import Tree
from ttpfl.util.reading import toml_or_text

Keys = tuple[str, ...]
"""The path to a value through tables."""


def parsed(text: str) -> Tree:
    """Parse one `--set` into a tree; keys with dots or equals signs are quoted.

    >>> parsed('cases."batch=5".data.shift=label')
    {'cases': {'batch=5': {'data': {'shift': 'label'}}}}
    """
    match = re.fullmatch(r'((?:"[^"]*"|[^"=])+)=(.*)', text.strip(), re.S)
    if match is None or not match[1].strip():
        raise RecipeError(f"--set {text}: must have the form key=value, such as train.rounds=10")
    value = toml_or_text(match[2].strip())
    for quoted, plain in reversed(re.findall(r'(?:^|\.)\s*(?:"([^"]*)"|([^."]*))', match[1].strip())):
        value = {quoted or plain.strip(): value}
    return dict(value)


def leaves(tree: Tree, above: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Every value with its path."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key), value


def contains(tree: Any, path: Keys) -> bool:
    """Whether there is a value at this path."""
    for key in path:
        if not isinstance(tree, dict) or key not in tree:
            return False
        tree = tree[key]
    return True
