"""HTML elements. Plain text is always escaped."""

import json
import math
from collections.abc import Iterable
from html import escape
from typing import Any


class Html(str):
    """Markup, which is not escaped again."""

    __slots__ = ()


Node = str | Iterable["Node"] | None

_CHILDLESS = {"meta", "img", "input", "br", "wbr", "circle", "line", "rect", "path"}


def element(name: str, /, *children: Node, **attributes: Any) -> Html:
    """An element. None and False omit an attribute; `class_` becomes class, `data_x` becomes data-x.

    >>> element("p", "1 < 2", element("b", "!"), class_="note", hidden=False)
    '<p class="note">1 &lt; 2<b>!</b></p>'
    """
    start = name + "".join(
        f' {_key(key)}="{escape(_text(value))}"' if value is not True else f" {_key(key)}"
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _CHILDLESS:
        return Html(f"<{start}/>")
    return Html(f"<{start}>{joined(*children)}</{name}>")


def joined(*nodes: Node) -> Html:
    """Concatenate nodes.

    >>> joined("a & b", [element("i", "c"), None])
    'a &amp; b<i>c</i>'
    """
    return Html("".join(_rendered(node) for node in nodes))


def breakable(name: str) -> Html:
    """A name that can continue on the next line after each underscore.

    >>> breakable("WALKING_UPSTAIRS")
    'WALKING_<wbr/>UPSTAIRS'
    """
    first, *others = name.split("_")
    return joined(first, [["_", element("wbr"), other] for other in others])


def embedded(value: object, **attributes: Any) -> Html:
    r"""JSON for the page's script. No text in it can end the element.

    >>> embedded({"name": "</script>", "value": float("nan")})
    '<script type="application/json">{"name":"\\u003c/script\\u003e","value":null}</script>'
    """
    text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)  # ASCII only
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Html(text), type="application/json", **attributes)


def _rendered(node: Node) -> str:
    if node is None:
        return ""
    if isinstance(node, str):
        return node if isinstance(node, Html) else escape(node, quote=False)
    return "".join(map(_rendered, node))


def _key(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
