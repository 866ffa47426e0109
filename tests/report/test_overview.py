"""One small table over several results."""

from typing import Any

import pytest

from tests.helpers import made_up
from ttpfl.errors import ReportError
from ttpfl.report.overview import overview


def results(seeds: int = 1, **by_method: tuple[float, ...]) -> dict[str, Any]:
    """Two clients in each run, half a point above and below one accuracy for each seed."""
    found = made_up.results(("hybrid",), made_up.TEN[: len(by_method)], clients=2, seeds=seeds)
    for number, run in enumerate(found["runs"]):
        for entry, (label, means) in zip(run["entries"], by_method.items(), strict=True):
            accuracy = [means[number] - 0.005, means[number] + 0.005]
            entry |= {"label": label, "accuracy": accuracy, "time": [2.0, 2.0]}
    return found | {"paper": {}}


def cells(text: str) -> dict[str, list[str]]:
    """Columns by the name of the row."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_strongest_baseline_is_neither_none_nor_a_variant_of_atp() -> None:
    accuracies = {"atp-online": (0.7,), "atp-batch": (0.75,), "atp-plus-online": (0.8,)}
    found = cells(overview([results(none=(0.9,), em=(0.6,), tent=(0.5,), **accuracies)]))
    assert found["strongest baseline"] == ["60.00 (em)"]
    assert (found["no adaptation"], found["ATP"], found["ATP-plus"]) == (["90.00"], ["70.00"], ["80.00"])
    assert found["… that lose accuracy with ATP / ATP-plus"] == ["2 / 2"]
    assert found["cost of ATP / ATP-plus"] == ["2.0 / 2.0"]


def test_spread_is_over_seeds_and_what_was_not_run_is_left_out() -> None:
    both = [results(none=(0.5,), em=(0.6,)), results(seeds=2, none=(0.5, 0.6), em=(0.7, 0.7))]
    found = cells(overview(both))
    assert found["no adaptation"] == ["50.00", "55.00±7.07"]
    assert found["strongest baseline"] == ["60.00 (em)", "70.00±0.00 (em)"]
    assert found["ATP"] == found["ATP-plus"] == ["-", "-"]
    assert found["new clients, over all seeds"] == ["2", "4"]


def test_results_of_one_recipe_are_told_apart_by_preset_and_cases() -> None:
    one, other = results(none=(0.5,)), results(none=(0.6,))
    one["recipe"] = other["recipe"] | {"preset": "cpu"}
    name = one["recipe"]["name"]
    found = cells(overview([one, other]))
    assert found[""] == [f"`{name}` (cpu, hybrid)", f"`{name}` ({other['recipe']['preset']}, hybrid)"]


def test_nothing_to_compare_is_an_error() -> None:
    with pytest.raises(ReportError, match="at least one results file"):
        overview([])
