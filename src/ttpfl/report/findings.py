"""What was found, in three sentences that are computed from the figures."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from ttpfl.evaluation.summary import BASELINE, Lead
from ttpfl.report.markup import Html, Node, element, joined
from ttpfl.report.numbers import ends, listed, plain, share, short, signed, words
from ttpfl.report.sections.variation import varied
from ttpfl.report.study import Case, Study
from ttpfl.results.schema import ToyExample

MANY = 4  # cases; more are not listed one by one


def findings(study: Study) -> list[Html]:
    """Which method leads and by how much, what it gains and whom it harms, and if the paper's order holds."""
    if study.toy is not None:
        return [_best_rate(study.toy), _learned_rate(study.toy), _paper(study)]
    if not study.common:
        return [joined("No method was run in every case, so that none can be called the best over all.")]
    return [_best(study), _gain(study), _paper(study)]


def _best(study: Study) -> Html:
    """Only clear leads over all others make a method the best."""
    first, methods, cases = study.leaders, len(study.common), len(study.cases)
    accuracy = share(study.overall[first[0]].accuracy)
    where = f"over {study.clients} client{'s' * (study.clients > 1)}"
    where += f" ({len(study.seeds)} seeds)" * (len(study.seeds) > 1)
    in_cases = f" in {cases} cases" if cases > 1 else ""
    if methods == 1:
        return joined("Only ", _named(first), f" was run{in_cases}, with an accuracy of {accuracy}, {where}.")
    what, value = ("average rank", plain(study.ranks[first[0]], 1)) if cases > 1 else ("accuracy", accuracy)
    if len(first) == methods:
        return joined(f"All {methods} methods{in_cases} have the same {what}, {value}, {where}.")
    of_all = f"Of {methods} methods{in_cases} "
    top = "lowest average rank" if cases > 1 else "highest accuracy"
    if len(first) > 1:
        return joined(of_all, _named(first), f" share the {top} ({value}), {where}.")
    lead = study.lead(*study.order[:2])
    clear = all(study.lead(first[0], other).is_clear for other in study.order[1:])
    verb = f"is best by {what}" if clear else f"has the {top}"
    figures = _accuracies(study, first[0]) if cases > 1 else ""
    said = f" {verb} ({value}){figures}, {where}. It is {_ahead(lead, study.order[1])}."
    return joined(of_all, _named(first), said)


def _ahead(lead: Lead, other: str) -> str:
    """How far from the next method, and whether that is more than chance."""
    away = f"{plain(abs(lead.points))} points in mean accuracy"
    place = f"{'behind' if lead.points < 0 else 'ahead of'} {other}, the next, by {away}"
    if lead.interval is None:
        return f"{place}; one client gives no interval"
    unclear = ": too close to call" * (lead.interval[0] <= 0 <= lead.interval[1])
    return f"{place} ({share(95, 0)} interval, paired by client: {ends(lead.interval)}){unclear}"


def _accuracies(study: Study, label: str) -> str:
    numbered = next(iter(varied(study.cases).values()), {})
    in_order = len(numbered) == len(study.cases)
    cases = numbered.values() if in_order else study.cases
    by_case = [f"{share(case.accuracy[label].mean)} ({case.name})" for case in cases]
    if len(by_case) <= MANY:
        figures = words(by_case)
    else:
        figures = f"{by_case[0]} to {by_case[-1]}" if in_order else share(study.overall[label].accuracy)
    return f", with a mean accuracy of {figures}"


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
        return joined(f"Nothing was run {missing} adaptation, so that no gain can be told.")
    line = study.overall[adapted]
    if study.leaders == [adapted]:
        subject = "Its difference to no adaptation is "
    elif study.leaders == [BASELINE]:
        subject = f"No adaptation comes first; the difference to it of the next, {adapted}, is "
    else:
        subject = f"The difference of {adapted} to no adaptation is "
    part = f" ({share(100 * line.harmed / study.clients, 0)})" if line.harmed else ""
    clients = f"client{'s' * (study.clients > 1)}"
    harmed = f"{line.harmed or 'none'} of {study.clients} {clients}{part} harmed"
    interval = f"{share(95, 0)} interval, paired by client: {ends(line.interval)}"
    if line.interval is None:
        interval = "one client gives no interval"
    harmed += " on average over the cases" * study.shared
    return joined(
        subject, _strong(f"{signed(line.difference)} points"),
        f" ({interval}){_by_case(study.cases, adapted)}, with {harmed}.",
    )  # fmt: skip


def _by_case(cases: Sequence[Case], label: str) -> str:
    """Where the difference to no adaptation is least and most."""
    differences = {case.name: case.lines[label].difference for case in cases}
    least, most = min(differences, key=differences.__getitem__), max(differences, key=differences.__getitem__)
    low, high = signed(differences[least]), signed(differences[most])
    if low == high:
        return ", the same in every case" * (len(cases) > 1)
    return f", from {low} ({least}) to {high} ({most})"


def _best_rate(toy: ToyExample) -> Html:
    by_rate = {line["alpha"]: 100 * line["closed_form"] for line in toy["alphas"]}
    best, *others = sorted(by_rate, key=by_rate.__getitem__, reverse=True)
    gain = by_rate[best] - by_rate[0] if 0 in by_rate else None
    to_none = "" if gain is None else f", {signed(gain)} points to no adaptation (rate 0)"
    rest = words([f"{share(by_rate[rate])} ({short(rate)})" for rate in others])
    return joined(
        f"Of {len(by_rate)} rates ", _strong(short(best)),
        f" is best: {share(by_rate[best])} of the new client's samples are right{to_none}. "
        f"The others: {rest}, in closed form.",
    )  # fmt: skip


def _learned_rate(toy: ToyExample) -> Html:
    learned, best = toy["learned"], toy["best"]
    rate = learned["rates"]["norm.running_mean"]
    return joined(
        "The rate that was learned for the mean is ", _strong(plain(rate)),
        f", with {share(100 * learned['closed_form'])} right; no rate has more than "
        f"{share(100 * best['closed_form'])} ({plain(best['alpha'])}).",
    )  # fmt: skip


def _paper(study: Study) -> Html:
    away = [(case.to_paper(label), label, case.name) for case in study.cases for label in case.paper]
    if not away:
        return joined("The paper has no figures to compare these with.")
    mean = sum(abs(distance) for distance, *_ in away) / len(away)
    distance, label, case_name = max(away, key=lambda item: abs(item[0]))
    distances = (
        f"{plain(mean, 1)} points from the paper's on average, "
        f"at most {signed(distance, 1)} ({listed(label, case_name)})."
    )
    ordered = list(_orders(study))
    if not ordered:
        return joined(f"Figures are {distances}")
    things = "methods" if study.toy is None else "rates"
    held = _strong(f"{sum(ordered)} of {len(ordered)}")
    return joined("The paper's order holds for ", held, f" pairs of {things}; figures are {distances}")


def _orders(study: Study) -> Iterator[bool]:
    """For each pair that the paper orders: is the order the same here? In the toy example cases have one."""
    rows = [[(case, label) for label in case.paper] for case in study.cases]
    if study.toy is not None:
        rows = [[(case, label) for case in study.cases if label in case.paper] for label in study.labels]
    for row in rows:
        for (case, one), (other_case, other) in combinations(row, 2):
            paper = case.paper[one].mean - other_case.paper[other].mean
            if paper:
                yield paper * (case.accuracy[one].mean - other_case.accuracy[other].mean) > 0
