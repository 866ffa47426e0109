"""What was found, in three sentences that are computed from the figures."""

from itertools import combinations

from ttpfl.report.markup import Html, element, joined
from ttpfl.report.numbers import listed, plain, share, signed, words
from ttpfl.report.study import BASELINE, Case, Study

MANY = 4  # cases; more are not listed one by one


def findings(study: Study) -> list[Html]:
    """Which method is best, what it gains and whom it harms, and whether the paper has the same order."""
    if not study.common:
        return [joined("No method was run in every case, so that none can be called the best over all.")]
    return [_best(study), _gain(study), _paper(study)]


def agreement(case: Case) -> tuple[int, int]:
    """Of the pairs of methods that the paper orders: how many have the same order here, and all."""
    pairs = [
        (case.paper[one].mean - case.paper[other].mean, case.accuracy[one].mean - case.accuracy[other].mean)
        for one, other in combinations(case.paper, 2)
        if case.paper[one].mean != case.paper[other].mean
    ]
    return sum(paper * here > 0 for paper, here in pairs), len(pairs)


def _best(study: Study) -> Html:
    best, others = study.order[0], len(study.common)
    where = f"over {study.clients} clients" + (f" ({len(study.seeds)} seeds)" if len(study.seeds) > 1 else "")
    name = element("strong", best)
    if len(study.cases) == 1:
        accuracy = share(study.overall[best].accuracy)
        return joined("Of ", str(others), " methods ", name, f" is the most accurate: {accuracy} {where}.")
    rank = plain(study.ranks[best], 1)
    if len(study.cases) <= MANY:
        each = words([f"{share(case.lines[best].accuracy)} ({case.name})" for case in study.cases])
        figures = f"with a mean accuracy of {each}"
    else:
        figures = f"with a mean accuracy of {share(study.overall[best].accuracy)}"
    return joined(
        f"Of {others} methods in {len(study.cases)} cases ", name,
        f" has the best average rank ({rank}), {figures}, {where}.",
    )  # fmt: skip


def _gain(study: Study) -> Html:
    adapted = [label for label in study.order if label != BASELINE]
    if BASELINE not in study.common or not adapted:
        return joined("Nothing was run without adaptation, so that no gain can be told.")
    line = study.overall[adapted[0]]
    low, high = line.interval
    change = element("strong", f"{signed(line.difference)} points")
    span = ""
    if len(study.cases) > 1:
        by_case = {case.name: case.lines[adapted[0]].difference for case in study.cases}
        least, most = min(by_case, key=by_case.__getitem__), max(by_case, key=by_case.__getitem__)
        span = f", from {signed(by_case[least])} ({least}) to {signed(by_case[most])} ({most})"
    part = f" ({share(100 * line.harmed / study.clients, 0)})" if line.harmed else ""
    harmed = f"{line.harmed or 'none'} of {study.clients} clients{part} harmed"
    harmed += " on average over the cases" * study.shared
    subject = (
        "Its" if adapted[0] == study.order[0] else f"No adaptation is best; the next, {adapted[0]}, has a"
    )
    return joined(
        f"{subject} difference to no adaptation is ", change,
        f" ({share(95, 0)} interval, paired by client: {signed(low)} to {signed(high)}){span}, "
        f"with {harmed}.",
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
    same, pairs = (sum(counts) for counts in zip(*map(agreement, study.cases), strict=True))
    if not pairs:
        return joined(f"Figures are {distances}")
    held = element("strong", f"{same} of {pairs}")
    return joined("The paper's order holds for ", held, f" pairs of methods; figures are {distances}")
