"""Learned rates: how far each part of the network moves, and in which direction."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from statistics import mean
from typing import cast

from ttpfl.federation.privacy.accountant import in_words
from ttpfl.report.chart import drawing, percent, tooltip
from ttpfl.report.markup import Html, element
from ttpfl.report.numbers import aligned, clipped, listed, merged, signed
from ttpfl.report.parts import Data, Section, Value, figure, legend, panels
from ttpfl.report.scale import Scale, covering
from ttpfl.report.study import Case, Study
from ttpfl.results.runs import entry_of
from ttpfl.results.schema import Module, RoundRecord
from ttpfl.util.printable import counted

ROW, BAR = 36, 10  # heights in pixels

ByCase = dict[str, list[Module]]


def rates(study: Study) -> Section | None:
    """Bars by block and by kind of module, for each method that has rates."""
    learned = _learned(study)
    if not learned:
        return None
    charts = {labels: _panel(by_case) for labels, by_case in learned.items()}
    seeds = ", averaged over seeds" if len(study.seeds) > 1 else ""
    caption = (
        f"Mean learned rate of the modules in each block and of each kind{seeds}; small dots are single "
        "modules. A positive rate follows the unlabelled batch, a negative one moves against it."
    )
    if privacy := _privacy(study):
        caption += f" Privacy of the rates (the model is not covered): {privacy}."
    keys = [("gain", "positive"), ("harm", "negative")]
    rows: list[list[Value]] = [
        [labels, case, module["name"], module["block"], module["kind"], module["rate"]]
        for labels, by_case in learned.items()
        for case, modules in by_case.items()
        for module in modules
    ]
    data = Data(["method", "case", "module", "block", "kind", "rate"], rows)
    content = figure("rates-figure", caption, [panels("Rates of", charts), legend(keys)], data)
    return Section("rates", "Learned rates", content)


def _learned(study: Study) -> dict[str, ByCase]:
    """Rates by method and case, averaged over seeds; methods with the same rates are merged."""
    by_label = {
        label: {case.name: modules for case in study.cases if (modules := _mean_over_seeds(case, label))}
        for label in study.labels
    }
    return merged((label, by_case) for label, by_case in by_label.items() if by_case)


def _privacy(study: Study) -> str:
    """For each method with private rates, the weakest privacy of any run; no bound is weakest."""
    weakest: dict[str, RoundRecord] = {}
    for run in study.results["runs"]:
        for entry in run["entries"]:
            record = entry["rates"]["history"][-1] if entry["rates"] and entry["rates"]["history"] else {}
            other = weakest.get(entry["label"], record)
            if "epsilon" in record and _epsilon(record) >= _epsilon(other):
                weakest[entry["label"]] = record
    return "; ".join(f"{label}: {in_words(record)}" for label, record in weakest.items())


def _epsilon(record: RoundRecord) -> float:
    return math.inf if record["epsilon"] is None else float(record["epsilon"])


def _mean_over_seeds(case: Case, label: str) -> list[Module]:
    entries = [entry for run in case.runs if (entry := entry_of(run, label))]
    of_seeds = [entry["rates"]["modules"] for entry in entries if entry["rates"]]
    return [
        cast(Module, {**same[0], "rate": mean(module["rate"] for module in same)})
        for same in zip(*of_seeds, strict=False)  # the modules of a network are the same with every seed
    ]


def _panel(by_case: ByCase) -> list[Html]:
    scale = covering((m["rate"] for modules in by_case.values() for m in modules), also=[0])
    charts = _distinct(by_case)
    rows = [
        [
            _chart(title, modules, grouping, scale)
            for title, modules in charts.items()
            if grouping == "block" or any(module["rate"] for module in modules)
        ]
        for grouping in ("block", "kind")
    ]
    if len(charts) == 1:  # side by side
        rows = [[*rows[0], *rows[1]]]
    return [element("div", charts, class_="multiples") for charts in rows]


def _distinct(by_case: ByCase) -> ByCase:
    """Merge cases with the same rates, such as those that differ only in the test."""
    groups = merged(by_case.items())
    if len(groups) == 1 < len(by_case):
        return {"the same in every case": next(iter(groups.values()))}
    return groups


def _chart(case: str, modules: Sequence[Module], grouping: str, scale: Scale) -> Html:
    if not any(module["rate"] for module in modules):
        text = "All rates are zero, so nothing adapts."
        return element("div", element("h5", case), element("p", text, class_="note"))
    bars = _bars(listed(f"Rates by {grouping}", case), modules, itemgetter(grouping), scale)
    return element("div", element("h5", case, element("small", f" by {grouping}")), bars)


def _bars(title: str, modules: Sequence[Module], key: Callable[[Module], str], scale: Scale) -> Html:
    groups: dict[str, list[Module]] = {}
    for module in modules:
        groups.setdefault(key(module), []).append(module)
    height = ROW * len(groups)
    rows = [_row(ROW * place, name, group, scale) for place, (name, group) in enumerate(groups.items())]
    description = "Mean rate of each group as a bar from zero."
    return drawing(title, description, height, rows, _axis(scale, height), class_="bars")


def _axis(scale: Scale, height: float) -> Iterator[Html]:
    """Labels at both ends and at zero."""
    values = [scale.low, 0.0, scale.high] if scale.low < 0 < scale.high else [scale.low, scale.high]
    for value, text in zip(values, aligned(values), strict=True):
        anchor = "start" if value == scale.low else "end" if value == scale.high else "middle"
        yield element("text", text, class_=f"tick {anchor}", x=percent(scale(value)), y=height + 16)


def _row(top: float, name: str, modules: Sequence[Module], scale: Scale) -> Iterator[Html]:
    rate = mean(module["rate"] for module in modules)
    middle = top + ROW - BAR - 1
    left, right = sorted([scale(0), scale(rate)])
    zero = percent(scale(0))
    digits = 2 - math.floor(math.log10(max(-scale.low, scale.high)))
    text = partial(signed, digits=max(0, digits))
    yield element("text", clipped(name, 34), class_="bar-name", x=0, y=top + 13)
    yield element("text", text(rate), class_="bar-value end", x="100%", y=top + 13)
    yield element(
        "rect",
        class_=f"bar {'harm' if rate < 0 else 'gain'}",
        x=percent(left), width=percent(right - left), y=middle - BAR / 2, height=BAR,
        **tooltip(f"{name}: mean {text(rate)} over {counted(len(modules), 'module')}"),
    )  # fmt: skip
    yield element("line", class_="base", x1=zero, x2=zero, y1=middle - BAR / 2 - 2, y2=middle + BAR / 2 + 2)
    if len(modules) > 1:
        for module in modules:
            label = tooltip(f"{module['name']}: {text(module['rate'])}")
            yield element("circle", class_="dot", cx=percent(scale(module["rate"])), cy=middle, r=2, **label)
