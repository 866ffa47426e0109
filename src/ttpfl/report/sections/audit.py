"""The data: clients, class counts, and the checks that passed."""

import math
from collections.abc import Iterator

from ttpfl.report.chart import drawing, percent, stretched, tooltip
from ttpfl.report.markup import Html, element
from ttpfl.report.numbers import clipped, listed
from ttpfl.report.parts import Data, Section, Value, definitions, figure, panels
from ttpfl.report.sections.clients import describe
from ttpfl.report.study import Study
from ttpfl.results.schema import Client, Run

LEVELS = (0.02, 0.1, 0.2, 0.35, 0.6)  # shares of a client's samples where the colour becomes stronger
MAX_NAMED = 16  # classes; the names of more do not fit
NAME, LONG_NAME = 10, 19  # characters of a class name; all have room for long ones if one needs it
CHARACTER, GAP, NARROW = 6.6, 6, 240  # pixels: character, gap between names, drawing on a phone
NARROWEST = 170  # beside long names
TOP = 3  # classes in a client's tooltip


def audit(study: Study) -> Section | None:
    """The population of each run and the class counts of its clients, if known."""
    if not any(run["population"]["classes"] for run in study.results["runs"]):
        return None
    runs = {study.title(run["case"], run["seed"]): _panel(run) for run in study.results["runs"]}
    caption = (
        "Class counts of the target clients: one column per client, one row per class. Stronger colour means "
        "a larger share of the client's samples."
    )
    content = figure("audit-figure", caption, panels("Run", runs), _data(study))
    return Section("audit", "Data audit", content)


def _panel(run: Run) -> Iterator[Html]:
    population = run["population"]
    source, digest = population["source_clients"], population["digest"]  # 0 and empty if unknown
    yield definitions(
        [
            ("data", population["name"]),
            ("clients", f"{source} source, " * bool(source) + f"{population['target_clients']} target"),
            ("target samples", f"{sum(client['size'] for client in run['clients']):,}"),
            ("digest", element("code", digest, class_="digest") if digest else None),
        ]
    )
    if population["checks"]:
        yield element("ul", [element("li", check) for check in population["checks"]], class_="checks")
    yield _counts(run)


def _counts(run: Run) -> Html:
    clients, classes = run["clients"], run["population"]["classes"]
    row = 18 if len(classes) <= MAX_NAMED else max(2, 288 // len(classes))
    height = row * len(classes)
    named = len(classes) <= MAX_NAMED
    long = named and max(map(len, classes), default=0) > NAME
    names = [
        element("text", clipped(name, LONG_NAME), class_="tick end", x=-8, y=row * (place + 0.5) + 4)
        for place, name in enumerate(classes)
        if named
    ]
    columns = [
        element(
            "rect",
            class_="column", x=percent(n / len(clients)), width=percent(1 / len(clients)), y=0, height=height,
            **tooltip(_label(client, classes)),
        )
        for n, client in enumerate(clients)
    ]  # fmt: skip
    return drawing(
        listed("Class counts", run["case"], f"seed {run['seed']}"),
        f"{len(clients)} clients from left to right, {len(classes)} classes from top to bottom.",
        height,
        stretched(_cells(clients), len(clients), len(classes), height), names, columns,
        _headings(clients, NARROWEST if long else NARROW), class_="counts long" if long else "counts",
    )  # fmt: skip


def _headings(clients: list[Client], narrow: int) -> Iterator[Html]:
    """Client names above the columns, without a common prefix; as many as fit into `narrow` pixels."""
    parts = [client["id"].rpartition("-") for client in clients]
    same = len({head for head, *_ in parts}) == 1  # as in target-0, target-1
    room = max(8, int((narrow / len(clients) - GAP) / CHARACTER))
    names = [clipped(parts[n][-1] if same else client["id"], room) for n, client in enumerate(clients)]
    step = math.ceil(len(names) * (CHARACTER * max(map(len, names)) + GAP) / narrow)
    yield element("text", "target client", class_="axis", x=0, y=-24)
    yield element("text", "class", class_="axis end", x=-8, y=-8)
    for place in range(0, len(names), step):
        middle = percent((place + 0.5) / len(names))
        yield element("text", names[place], class_="tick middle", x=middle, y=-8)


def _cells(clients: list[Client]) -> Iterator[Html]:
    """One path for all cells of the same level."""
    paths: list[list[str]] = [[] for _ in LEVELS]
    for x, client in enumerate(clients):
        for y, count in enumerate(client["labels"]):
            share = count / max(1, client["size"])
            if level := sum(share >= bound for bound in LEVELS):
                paths[level - 1].append(f"M{x} {y}h.92v.9h-.92z")
    for level, cells in enumerate(paths, start=1):
        if cells:
            yield element("path", class_=f"level l{level}", d="".join(cells))


def _label(client: Client, classes: list[str]) -> str:
    counts = sorted(zip(client["labels"], classes, strict=True), key=lambda pair: -pair[0])
    top = ", ".join(f"{name} {count}" for count, name in counts[:TOP])
    return f"{describe(client)}: {client['size']} samples; {top}" + " …" * (len(counts) > TOP)


def _data(study: Study) -> Data:
    classes = list(dict.fromkeys(c for run in study.results["runs"] for c in run["population"]["classes"]))
    rows: list[list[Value]] = []
    for run in study.results["runs"]:
        for client in run["clients"]:
            counts = dict(zip(run["population"]["classes"], client["labels"], strict=True))
            rows.append([run["case"], run["seed"], client["id"], client["size"], *map(counts.get, classes)])
    return Data(["case", "seed", "client", "samples", *classes], rows)
