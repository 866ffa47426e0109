"""The accuracy of every client before and after adaptation, which shows harmed clients."""

import json
from collections.abc import Mapping

from ttpfl.evaluation.summary import BASELINE
from ttpfl.report.chart import Axis, Canvas, axis_note, percent, tooltip
from ttpfl.report.markup import Html, Node, element
from ttpfl.report.numbers import capital, listed, percentage, plain, signed
from ttpfl.report.parts import Data, Section, Value, figure, legend, panels
from ttpfl.report.scale import Scale, covering
from ttpfl.report.study import Study
from ttpfl.results.comparison import Comparison
from ttpfl.results.schema import HEADLINES, Client, Run

COLUMNS = ["case", "seed", "client", "domain", "corruption", "severity"]


def clients(study: Study) -> Section | None:
    """Paired points; run and method can be chosen."""
    methods = [label for label in study.order if label != BASELINE]
    if BASELINE not in study.common or not methods:
        return None
    runs, first_row, first_axes = {}, 0, []
    for run in study.results["runs"]:
        axes = {label: _axis(run, label, study.metric) for label in methods}
        runs[study.title(run["case"], run["seed"])] = _panel(run, axes, first_row)
        first_row += len(run["clients"])
        first_axes.append(axes[methods[0]])
    caption = (
        f"{capital(study.metric)} of each client without adaptation (ring) and with it (dot), sorted by the "
        "former. The dot of a harmed client lies below its ring. The axis fits the method shown."
        f"{axis_note(*first_axes)}"
    )
    keys = [("ring", "no adaptation"), ("gain", "better"), ("harm", "harmed")]
    body = [_choice(methods), panels("Run", runs), legend(keys)]
    content = figure("clients-figure", caption, body, _data(study, [BASELINE, *methods]))
    return Section("clients", "Every client, before and after", content)


def describe(client: Client) -> str:
    """A client's name, domain and corruption."""
    corruption = client["corruption"]
    corrupted = f"{corruption['name'].replace('_', ' ')} {corruption['severity']}" if corruption else None
    domain = client["domain"] if client["domain"] != client["id"] else None  # persons and sites are their own
    return listed(client["id"], domain, corrupted)


def _choice(methods: list[str]) -> Html:
    select = element("select", [element("option", label) for label in methods])
    label = element("label", "Method ", select)
    return element("p", label, class_="choice method", hidden=True, data_baseline=BASELINE)


def _panel(run: Run, axes: Mapping[str, Axis], first_row: int) -> Html:
    """The chart of the first method, with the axes of the others for the page's script."""
    method = next(iter(axes))
    before, after = (Comparison(run).of(label) for label in (BASELINE, method))
    canvas = Canvas(Axis(Scale(0, len(before)), f"{len(before)} clients", ticks=[]), axes[method], height=280)
    order = sorted(range(len(before)), key=before.__getitem__)
    pairs = [
        _pair(canvas, place, 100 * before[n], 100 * after[n], describe(run["clients"][n]), first_row + n)
        for place, n in enumerate(order)
    ]
    scale = canvas.y.scale
    group = element(
        "g", pairs, class_="pairs",
        data_low=scale.low, data_high=scale.high, data_height=canvas.height, data_axes=_as_json(axes),
    )  # fmt: skip
    title = listed(
        f"{capital(HEADLINES[Comparison(run).headline])} per client", run["case"], f"seed {run['seed']}"
    )
    chart = canvas.drawn(title, "A ring (no adaptation) and a dot (adapted) for each client.", group)
    return element("div", element("p", _summary(method, before, after), class_="note", role="status"), chart)


def _axis(run: Run, label: str, metric: str) -> Axis:
    accuracies = [100 * value for method in (BASELINE, label) for value in Comparison(run).of(method)]
    return Axis(covering(accuracies), f"{metric}, %")


def _as_json(axes: Mapping[str, Axis]) -> str:
    """Ends and ticks of each method's axis."""
    scales = {label: (axis.scale, axis.marks()) for label, axis in axes.items()}
    return json.dumps({name: {"low": s.low, "high": s.high, "marks": m} for name, (s, m) in scales.items()})


def _pair(canvas: Canvas, place: int, before: float, after: float, name: str, row: int) -> Html:
    x, y1, y2 = canvas.left(place + 0.5), canvas.top(before), canvas.top(after)
    change = f"{plain(before, 1)} % \N{RIGHTWARDS ARROW} {plain(after, 1)} % ({signed(after - before, 1)})"
    return element(
        "g",
        element("rect", x=canvas.left(place), width=percent(1 / canvas.x.scale.high), height=canvas.height),
        element("line", x1=x, x2=x, y1=y1, y2=y2),
        element("circle", cx=x, cy=y1, r=3),
        element("circle", cx=x, cy=y2, r=3.5),
        class_="harm" if after < before else "gain" if after > before else "same",
        data_row=row, data_name=name, **tooltip(f"{name}: {change}"),
    )  # fmt: skip


def _summary(method: str, before: list[float], after: list[float]) -> Node:
    harmed = sum(a < b for a, b in zip(after, before, strict=True))
    means = [percentage(100 * sum(values) / len(values), 1) for values in (before, after)]
    arrow = "\N{RIGHTWARDS ARROW}"
    return f"{method}: {harmed} of {len(before)} clients harmed, mean {means[0]} {arrow} {means[1]}"


def _data(study: Study, labels: list[str]) -> Data:
    """One row per client, one column per method. The page's script draws the other methods from it."""
    rows: list[list[Value]] = []
    for run in study.results["runs"]:
        columns = [Comparison(run).of(label) for label in labels]
        for number, client in enumerate(run["clients"]):
            corruption = client["corruption"]
            cells: list[Value] = [run["case"], run["seed"], client["id"], client["domain"]]
            cells += [corruption["name"], corruption["severity"]] if corruption else [None, None]
            rows.append([*cells, *(column[number] for column in columns)])
    return Data([*COLUMNS, *labels], rows)
