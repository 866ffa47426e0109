"""Writing TOML."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Default:
    """A default, written as a comment, so that it is not set when the text is read."""

    value: Any


def written(tree: dict[str, Any], path: tuple[str, ...]) -> str:
    """Format a tree: values first, then tables; a list of tables becomes one `[[key]]` for each.

    >>> tree = {"train": {"lr": 0.1, "momentum": Default(0.0)}, "seeds": [0], "entries": [{"label": "EM"}]}
    >>> print(written(tree, ()))
    seeds = [0]
    <BLANKLINE>
    [train]
    lr = 0.1
    # momentum = 0.0
    <BLANKLINE>
    [[entries]]
    label = "EM"
    <BLANKLINE>
    """
    lines, tables = "", ""
    for key, item in tree.items():
        if item is None or item == Default(None):
            lines += f"# {_key(key)} is not set\n"
        elif isinstance(item, Default):
            lines += f"# {_key(key)} = {value(item.value)}\n"
        elif isinstance(item, dict) and item:
            tables += written(item, (*path, key))
        elif isinstance(item, list) and item and all(isinstance(table, dict) for table in item):
            for table in item:
                tables += f"\n[[{dotted((*path, key))}]]\n"
                tables += "".join(f"{_key(name)} = {value(part)}\n" for name, part in table.items())
        else:
            lines += f"{_key(key)} = {value(item)}\n"
    return (f"\n[{dotted(path)}]\n" if path and lines else "") + lines + tables


def dotted(path: Iterable[str]) -> str:
    """A dotted key.

    >>> dotted(["cases", "+10", "train"])
    'cases."+10".train'
    """
    return ".".join(map(_key, path))


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else value(key)


def value(item: Any) -> str:
    r"""Format a value. Strings are those of JSON, except for surrogate pairs and DEL, which TOML lacks.

    >>> print(value({"image size": [32, "\"😀\x7f\""]}))
    { "image size" = [32, "\"😀\u007f\""] }
    """
    if isinstance(item, dict):
        return "{ " + ", ".join(f"{_key(k)} = {value(v)}" for k, v in item.items()) + " }" if item else "{}"
    if isinstance(item, (list, tuple)):
        return "[" + ", ".join(map(value, item)) + "]"
    return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")
