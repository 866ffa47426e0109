"""Writing TOML."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Default:
    """A value that nobody said: written as a comment, so that reading it back does not say it either."""

    value: Any


def written(tree: dict[str, Any], path: tuple[str, ...]) -> str:
    """A tree as TOML: plain values first, then tables; a list of tables has one `[[key]]` for each.

    >>> print(written({"train": {"lr": 0.1, "momentum": Default(0.0)}, "seeds": [0]}, ()))
    seeds = [0]
    <BLANKLINE>
    [train]
    lr = 0.1
    # momentum = 0.0
    <BLANKLINE>
    """
    lines, tables = [], []
    for key, said in tree.items():
        if said is None or said == Default(None):
            lines.append(f"# {_key(key)} is not set")
        elif isinstance(said, Default):
            lines.append(f"# {_key(key)} = {value(said.value)}")
        elif isinstance(said, dict) and said:
            tables.append(written(said, (*path, key)))
        elif isinstance(said, list) and said and all(isinstance(one, dict) for one in said):
            tables += [_item(one, (*path, key)) for one in said]
        else:
            lines.append(f"{_key(key)} = {value(said)}")
    head = f"\n[{dotted(path)}]\n" if path and lines else ""
    return head + "\n".join(lines) + ("\n" if lines else "") + "".join(tables)


def _item(table: dict[str, Any], path: tuple[str, ...]) -> str:
    """One of several tables of the same name.

    >>> print(_item({"label": "EM", "config": {"iterations": 2}}, ("entries",)))
    <BLANKLINE>
    [[entries]]
    label = "EM"
    config = { iterations = 2 }
    <BLANKLINE>
    """
    return f"\n[[{dotted(path)}]]\n" + "".join(
        f"{_key(key)} = {value(said)}\n" for key, said in table.items()
    )


def dotted(path: Iterable[str]) -> str:
    """A key within tables.

    >>> dotted(["cases", "+10", "train"])
    'cases."+10".train'
    """
    return ".".join(map(_key, path))


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else _text(key)


def value(said: Any) -> str:
    """A value as TOML has it.

    >>> print(value({"image size": [32, 32]}))
    { "image size" = [32, 32] }
    """
    if isinstance(said, dict):
        return "{ " + ", ".join(f"{_key(k)} = {value(v)}" for k, v in said.items()) + " }" if said else "{}"
    if isinstance(said, (list, tuple)):
        return "[" + ", ".join(map(value, said)) + "]"
    return _text(said) if isinstance(said, str) else json.dumps(said)


def _text(said: str) -> str:
    r"""As JSON writes it, but for two things: TOML knows no pairs of surrogates, and no bare DEL.

    >>> print(_text("\"😀\x7f\""))
    "\"😀\u007f\""
    """
    return json.dumps(said, ensure_ascii=False).replace("\x7f", "\\u007f")
