"""One small table over several results: no adaptation, the strongest baseline, ATP and ATP-plus."""

from collections.abc import Sequence
from statistics import fmean

from ttpfl.errors import ReportError
from ttpfl.evaluation.summary import BASELINE, Spread
from ttpfl.report.numbers import listed
from ttpfl.report.study import Study, study
from ttpfl.report.tables import table
from ttpfl.results.comparison import Comparison

ATP, PLUS = "atp-online", "atp-plus-online"
OURS = "atp"
"""How the names of ATP's variants begin; everything else is a baseline."""
NOT_MEASURED = "-"


def overview(all_results: Sequence[object]) -> str:
    """A Markdown table with a column for each result, and the cost of ATP and ATP-plus.

    The strongest baseline is that of the highest accuracy over all clients, chosen in hindsight.
    """
    studies = [study(results) for results in all_results]
    if not studies:
        raise ReportError("an overview needs at least one results file")
    names = _names(studies)
    rows = [
        ["no adaptation", *(_cell(one, BASELINE) for one in studies)],
        ["strongest baseline", *(_strongest(one) for one in studies)],
        ["ATP", *(_cell(one, ATP) for one in studies)],
        ["ATP-plus", *(_cell(one, PLUS) for one in studies)],
        ["cost of ATP / ATP-plus", *(f"{_cost(one, ATP)} / {_cost(one, PLUS)}" for one in studies)],
        ["new clients, over all seeds", *(str(one.clients) for one in studies)],
        [
            "… that lose accuracy with ATP / ATP-plus",
            *(f"{_harmed(one, ATP)} / {_harmed(one, PLUS)}" for one in studies),
        ],
    ]
    return table(["", *names], rows)


def _names(studies: Sequence[Study]) -> list[str]:
    """The recipes' names; those of several results of one recipe with their presets and cases."""
    names = [one.results["recipe"]["name"] for one in studies]
    return [
        f"`{name}`" if names.count(name) == 1 else f"`{name}` ({listed(_preset(one), *_cases(one))})"
        for name, one in zip(names, studies, strict=True)
    ]


def _cases(study: Study) -> list[str]:
    return [case.name for case in study.cases]


def _preset(study: Study) -> str:
    return str(study.results["recipe"]["preset"])


def spread(study: Study, label: str) -> Spread:
    """Mean over all cases and clients, by seed."""
    each = []
    for seed in study.seeds:
        runs = [run for run in study.results["runs"] if run["seed"] == seed]
        each.append(100 * fmean(value for run in runs for value in Comparison(run).of(label)))
    return Spread.of(each)


def _cell(study: Study, label: str) -> str:
    return str(spread(study, label)) if label in study.common else NOT_MEASURED


def _strongest(study: Study) -> str:
    baselines = [one for one in study.common if one != BASELINE and not one.startswith(OURS)]
    if not baselines:
        return NOT_MEASURED
    best = max(baselines, key=lambda label: study.overall[label].accuracy)
    return f"{spread(study, best)} ({best})"


def _cost(study: Study, label: str) -> str:
    return f"{study.overall[label].time:.1f}" if label in study.common else NOT_MEASURED


def _harmed(study: Study, label: str) -> str:
    return str(study.overall[label].harmed) if label in study.common else NOT_MEASURED
