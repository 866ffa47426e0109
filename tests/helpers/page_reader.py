"""What a page holds, read with the standard library's parser."""

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "img", "input", "br"}


@dataclass
class Element:
    """An element with its text and children."""

    name: str
    attributes: dict[str, str | None]
    parent: "Element | None" = None
    children: "list[Element]" = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def all(self, name: str | None = None, **attributes: str) -> "list[Element]":
        """Elements inside with this name and these attributes, of which `class_` may be one of several."""
        found = []
        for child in self.children:
            if (name is None or child.name == name) and child._has(attributes):
                found.append(child)
            found += child.all(name, **attributes)
        return found

    def one(self, name: str | None = None, **attributes: str) -> "Element":
        """The only one of them."""
        (found,) = self.all(name, **attributes)
        return found

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(self.texts)

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    def _has(self, attributes: dict[str, str]) -> bool:
        wanted = dict(attributes)
        class_ = wanted.pop("class_", None)
        return (class_ is None or class_ in self.classes) and all(
            self.attributes.get(key) == value for key, value in wanted.items()
        )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.here = Element("document", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), self.here)
        self.here.children.append(element)
        if tag not in VOID:
            self.here = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.here.children.append(Element(tag, dict(attrs), self.here))

    def handle_endtag(self, tag: str) -> None:
        assert self.here.name == tag, f"<{self.here.name}> is ended by </{tag}>"
        assert self.here.parent is not None
        self.here = self.here.parent

    def handle_data(self, data: str) -> None:
        element: Element | None = self.here
        while element is not None:
            element.texts.append(data)
            element = element.parent


def read(page: str) -> Element:
    """The document; an AssertionError if its elements do not nest."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.here is reader.root, f"<{reader.here.name}> is not ended"
    return reader.root


def table(document: Element, name: str) -> dict[str, dict[str, Element]]:
    """The cells of the table in the region called `name`, by the first column and the column's title."""
    region = document.one("div", **{"aria-label": name})
    titles = [header.text for header in region.one("thead").all("th")]
    rows = [row.children for row in region.one("tbody").all("tr")]
    return {row[0].text: dict(zip(titles, row, strict=True)) for row in rows}


def data(document: Element, id: str) -> list[dict[str, Any]]:
    """The rows of the data behind a figure."""
    content = json.loads(document.one("figure", id=id).one("script", class_="data").text)
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
