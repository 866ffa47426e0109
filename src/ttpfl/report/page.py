"""The whole page: one HTML document that needs nothing else."""

import base64
import hashlib
from importlib.resources import files

from ttpfl.report.findings import findings
from ttpfl.report.markup import Html, Node, element, joined
from ttpfl.report.parts import Section
from ttpfl.report.sections import SECTIONS
from ttpfl.report.study import Study, study


def page(results: object, samples: object = None) -> Html:
    """The report of the content of a `results.json` and, if there is one, of a `samples.json`."""
    known = study(results, samples)
    sections = [section for make in SECTIONS if (section := make(known)) is not None]
    script = _file("page.js")
    return joined(
        Html("<!doctype html>\n"),
        element("html", _head(known, script), _body(known, sections, script), lang="en"),
        Html("\n"),
    )


def _head(known: Study, script: str) -> Html:
    """Nothing may be loaded from anywhere, and no script may run but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", known.results["recipe"]["title"]),
        element("style", Html(_file("page.css"))),
    )


def _body(known: Study, sections: list[Section], script: str) -> Html:
    recipe = known.results["recipe"]
    origin = " · ".join(filter(None, ["ttpfl report", recipe["name"], recipe.get("preset")]))
    header = element(
        "header",
        element("p", origin, class_="origin"),
        element("h1", recipe["title"]),
        element("p", recipe["question"], class_="question"),
        element("div", [element("p", sentence) for sentence in findings(known)], class_="findings"),
        element("nav", [element("a", s.title, href=f"#{s.id}") for s in sections], aria_label="Sections"),
    )
    return element(
        "body", header, element("main", [_section(s) for s in sections]), element("script", Html(script))
    )


def _section(section: Section) -> Node:
    return element("section", element("h2", section.title), section.body, id=section.id)


def _file(name: str) -> str:
    return files("ttpfl.report").joinpath(name).read_text(encoding="utf-8")
