"""The page: a single, self-contained HTML document."""

import base64
import hashlib
from importlib.resources import files

from ttpfl.report.findings import findings
from ttpfl.report.markup import Html, element
from ttpfl.report.parts import Section
from ttpfl.report.sections import SECTIONS
from ttpfl.report.study import Study, study


def page(results: object, samples: object = None) -> Html:
    """The report on the content of a `results.json` and, optionally, of a `samples.json`."""
    checked = study(results, samples)
    script = _file("page.js")
    document = element("html", _head(checked, script), _body(checked, script), lang="en")
    return Html(f"<!doctype html>\n{document}\n")


def _head(study: Study, script: str) -> Html:
    """The policy allows no external resource, and no script except the page's own."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", study.results["recipe"]["title"]),
        element("style", Html(_file("page.css"))),
    )


def _body(study: Study, script: str) -> Html:
    recipe = study.results["recipe"]
    sections = [section for make in SECTIONS if (section := make(study)) is not None]
    origin = " · ".join(filter(None, ["ttpfl report", recipe["name"], recipe.get("preset")]))
    header = element(
        "header",
        element("p", origin, class_="origin"),
        element("h1", recipe["title"]),
        element("p", recipe["question"], class_="question"),
        element("div", [element("p", sentence) for sentence in findings(study)], class_="findings"),
        element("nav", [element("a", s.title, href=f"#{s.id}") for s in sections], aria_label="Sections"),
    )
    main = element("main", [_section(section) for section in sections])
    return element("body", header, main, element("script", Html(script)))


def _section(section: Section) -> Html:
    return element("section", element("h2", section.title), section.body, id=section.id)


def _file(name: str) -> str:
    return files("ttpfl.report").joinpath(name).read_text(encoding="utf-8")
