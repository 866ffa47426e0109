"""The main findings, in three sentences computed from the figures."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from ttpfl.evaluation.summary import BASELINE, Interval, Lead
from ttpfl.report.markup import Html, Node, element, joined
from ttpfl.report.numbers import ends, listed, percentage, plain, short, signed, words
from ttpfl.report.sections.variation import varied
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import ToyExample
from ttpfl.util.printable import counted

MAX_LISTED = 4  # cases whose accuracies are listed one by one


def findings(study: Study) -> list[Html]:
    """Which method leads and by how much, its gain and whom it harms, and whether the paper's order holds."""
    if study.toy is not None:
        return [_best_rate(study.toy), _learned_rate(study.toy), _paper(study)]
    if not study.common:
        return [joined("No method was run in every case, so none is best overall.")]
    return [_best(study), _gain(study), _paper(study)]


def _best(study: Study) -> Html:
    """A method is the best only if it clearly leads all others."""
    leaders, methods, cases = study.leaders, len(study.common), len(study.cases)
    accuracy = percentage(study.overall[leaders[0]].accuracy)
    clients = f"over {counted(study.clients, 'client')}"
    clients += f" ({len(study.seeds)} seeds)" * (len(study.seeds) > 1)
    in_cases = f" in {cases} cases" if cases > 1 else ""
    if methods == 1:
        return joined(
            "Only ",
            _named(leaders),
            f" was run{in_cases}, with a mean {study.metric} of {accuracy}, {clients}.",
        )
    metric, value = (
        ("average rank", plain(study.ranks[leaders[0]], 1)) if cases > 1 else (study.metric, accuracy)
    )
    if len(leaders) == methods:
        return joined(f"All {methods} methods{in_cases} have the same {metric}, {value}, {clients}.")
    of_all = f"Of {methods} methods{in_cases}, "
    top = "lowest average rank" if cases > 1 else f"highest {study.metric}"
    if len(leaders) > 1:
        return joined(of_all, _named(leaders), f" share the {top} ({value}), {clients}.")
    lead = study.lead(*study.order[:2])
    clear = all(study.lead(leaders[0], other).is_clear for other in study.order[1:])
    verb = f"is best by {metric}" if clear else f"has the {top}"
    figures = _accuracies(study, leaders[0]) if cases > 1 else ""
    rest = f" {verb} ({value}){figures}, {clients}. It {_lead(lead, study.order[1], study.metric)}."
    return joined(of_all, _named(leaders), rest)


def _lead(lead: Lead, other: str, metric: str) -> str:
    """The distance to the runner-up, and whether it is more than chance."""
    verb = "trails" if lead.points < 0 else "leads"
    text = f"{verb} {other}, the runner-up, by {plain(abs(lead.points))} points in mean {metric}"
    unclear = lead.interval is not None and lead.interval[0] <= 0 <= lead.interval[1]
    return f"{text} ({_interval(lead.interval)})" + ": too close to call" * unclear


def _interval(interval: Interval | None) -> str:
    if interval is None:
        return "a single client gives no interval"
    return f"{percentage(95, 0)} interval, paired by client: {ends(interval)}"


def _accuracies(study: Study, label: str) -> str:
    numbered = next(iter(varied(study.cases).values()), {})
    in_order = len(numbered) == len(study.cases)
    cases = numbered.values() if in_order else study.cases
    by_case = [f"{percentage(case.accuracy[label].mean)} ({case.name})" for case in cases]
    if len(by_case) <= MAX_LISTED:
        figures = words(by_case)
    else:
        figures = f"{by_case[0]} to {by_case[-1]}" if in_order else percentage(study.overall[label].accuracy)
    return f", with a mean {study.metric} of {figures}"


def _named(labels: Sequence[str]) -> Node:
    """A list in a sentence, with emphasis."""
    between = [", "] * (len(labels) - 2) + [" and "] * (len(labels) > 1) + [""]
    return [part for label, after in zip(labels, between, strict=True) for part in (_strong(label), after)]


def _strong(text: str) -> Html:
    return element("strong", text)


def _gain(study: Study) -> Html:
    adapted = next((label for label in study.order if label != BASELINE), None)
    if BASELINE not in study.common or adapted is None:
        missing = "with" if adapted is None else "without"
        return joined(f"No method was run {missing} adaptation, so there is no gain to report.")
    line = study.overall[adapted]
    if study.leaders == [BASELINE]:
        subject = f"No adaptation comes first; the runner-up, {adapted}, differs from it by "
    else:
        subject = f"{'It' if study.leaders == [adapted] else adapted} differs from no adaptation by "
    part = f" ({percentage(100 * line.harmed / study.clients, 0)})" if line.harmed else ""
    harmed = f"{line.harmed or 'none'} of {counted(study.clients, 'client')}{part} harmed"
    harmed += " on average over the cases" * study.shared
    rest = f" ({_interval(line.interval)}){_by_case(study.cases, adapted)}, with {harmed}."
    return joined(subject, _strong(f"{signed(line.difference)} points"), rest)


def _by_case(cases: Sequence[Case], label: str) -> str:
    """Where the difference from no adaptation is smallest and largest."""
    differences = {case.name: case.lines[label].difference for case in cases}
    least, most = min(differences, key=differences.__getitem__), max(differences, key=differences.__getitem__)
    low, high = signed(differences[least]), signed(differences[most])
    if low == high:
        return ", the same in every case" * (len(cases) > 1)
    return f", from {low} ({least}) to {high} ({most})"


def _best_rate(toy: ToyExample) -> Html:
    by_rate = {line["alpha"]: 100 * line["closed_form"] for line in toy["alphas"]}
    best, *others = sorted(by_rate, key=by_rate.__getitem__, reverse=True)
    gain = (
        f", {signed(by_rate[best] - by_rate[0])} points compared with no adaptation (rate 0)"
        if 0 in by_rate
        else ""
    )
    rest = words([f"{percentage(by_rate[rate])} ({short(rate)})" for rate in others])
    return joined(
        f"Of {len(by_rate)} rates, ", _strong(short(best)),
        f" is best: it classifies {percentage(by_rate[best])} of the new client's samples correctly{gain}. "
        f"The others, in closed form: {rest}.",
    )  # fmt: skip


def _learned_rate(toy: ToyExample) -> Html:
    learned, best = toy["learned"], toy["best"]
    return joined(
        "The rate learned for the mean is ", _strong(plain(learned["rates"]["norm.running_mean"])),
        f", with {percentage(100 * learned['closed_form'])} correct; no rate exceeds "
        f"{percentage(100 * best['closed_form'])} (at {plain(best['alpha'])}).",
    )  # fmt: skip


def _paper(study: Study) -> Html:
    away = [(case.vs_paper(label), label, case.name) for case in study.cases for label in case.paper]
    if not away:
        return joined("The paper reports no figures to compare these with.")
    mean = sum(abs(distance) for distance, *_ in away) / len(away)
    distance, label, case_name = max(away, key=lambda item: abs(item[0]))
    distances = (
        f"Accuracies differ from the paper's by {plain(mean, 1)} points on average, "
        f"at most {signed(distance, 1)} ({listed(label, case_name)})."
    )
    ordered = list(_orders(study))
    if not ordered:
        return joined(distances)
    held = _strong(f"{sum(ordered)} of {len(ordered)}")
    kind = "methods" if study.toy is None else "rates"
    return joined("The paper's order holds for ", held, f" pairs of {kind}. {distances}")


def _orders(study: Study) -> Iterator[bool]:
    """For each pair that the paper orders, whether the order is the same here. Toy cases are single rates."""
    rows = [[(case, label) for label in case.paper] for case in study.cases]
    if study.toy is not None:
        rows = [[(case, label) for case in study.cases if label in case.paper] for label in study.labels]
    for row in rows:
        for (case, label), (other_case, other) in combinations(row, 2):
            paper = case.paper[label].mean - other_case.paper[other].mean
            if paper:
                yield paper * (case.accuracy[label].mean - other_case.accuracy[other].mean) > 0
