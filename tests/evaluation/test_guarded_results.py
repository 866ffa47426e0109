"""What a guard estimates is in the results and in the report, beside the truth."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.helpers import small_population
from tests.helpers.page_reader import read as read_page
from ttpfl import data
from ttpfl.core.gain import FIGURES, GAIN, RIGHT, Coefficients
from ttpfl.core.guard import Estimator, Guard, Limits
from ttpfl.core.rates import Rates
from ttpfl.errors import MethodError, ReportError
from ttpfl.evaluation import Comparison, Evaluator, compare
from ttpfl.methods import SourceInfo, make
from ttpfl.report.page import page
from ttpfl.results.files import checked_results, load

PLAIN_ERROR, GAIN_ERROR = 0.03, 0.04  # together 0.05


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> data.Federated:
    return small_population.population(small_population.made_images(), tmp_path_factory.mktemp("data"))


def compared(federated: data.Federated, gain: float, order: str = "iid") -> Comparison:
    """A guard that thinks half of the predictions right, and that every changed one gains so much."""
    population, answers, _ = federated
    model = small_population.network()
    rates = Rates.zeros(model)
    rates.values += 0.5
    unit, anywhere = torch.eye(GAIN, dtype=torch.float64)[0], torch.zeros(FIGURES, FIGURES)
    coefficients = Coefficients(gain * unit, 0.5 * unit[:RIGHT], 0 * unit[:FIGURES], anywhere.double())
    estimator = Estimator(tuple(coefficients.numbers.tolist()), 0.05, GAIN_ERROR, PLAIN_ERROR, {})
    free = {spec.name: 1e9 for spec in rates.modules}
    guard = Guard(Limits(free, free, 1e9, 20), estimator)
    methods = [
        (make("none"), SourceInfo()),
        (make("atp-online", guard=True), SourceInfo(rates={"all": replace(rates, guard=guard)})),
    ]
    evaluator = Evaluator(population.target, answers, batch_size=20, order=order)
    return compare(model, evaluator, methods, workers=0)


def test_estimates_of_a_guard_that_lets_adaptation_go_on(federated: data.Federated) -> None:
    plain, guarded = compared(federated, gain=0.0).run["entries"]
    assert "guard" not in plain
    clients = len(federated.population.target)
    found = guarded["guard"]
    assert found["estimate"] == found["plain"] == pytest.approx([0.5] * clients)
    assert found["low"] == pytest.approx([0.5 - 1.96 * 0.05] * clients)
    assert found["high"] == pytest.approx([0.5 + 1.96 * 0.05] * clients)
    assert found["alarms"] == found["stopped"] == [0] * clients


def test_a_guard_that_stops_adaptation(federated: data.Federated, tmp_path: Path) -> None:
    comparison = compared(federated, gain=-1.0)
    guarded = comparison.run["entries"][1]
    found = guarded["guard"]
    assert found["stopped"] == found["alarms"]
    assert 1 in found["stopped"]
    errors = [PLAIN_ERROR if stopped else 0.05 for stopped in found["stopped"]]
    assert found["low"] == pytest.approx([0.5 - 1.96 * error for error in errors])
    comparison.save(tmp_path / "results.json")
    results = load(tmp_path / "results.json")
    table = read_page(page(results)).one("section", id="guards").one("table")
    for accuracy in guarded["accuracy"]:
        assert f"{100 * accuracy:.2f}" in table.text
    assert "44.12 to 55.88" in table.text
    assert table.text.count("1*") == sum(filter(None, found["stopped"]))
    del found["estimate"][0]
    with pytest.raises(ReportError, match="estimate of the guard of atp-online is not for all clients"):
        checked_results(Comparison(comparison.run).save(tmp_path / "again.json"))


def test_a_stream_of_all_clients_has_no_estimate_for_each(federated: data.Federated) -> None:
    assert "guard" not in compared(federated, 0.0, "continual").run["entries"][1]


def test_rates_without_a_guard_are_refused(federated: data.Federated) -> None:
    model = small_population.network()
    zeros = Rates.zeros(model)
    some = zeros.with_values(torch.ones_like(zeros.values))
    with pytest.raises(MethodError, match="needs rates with a guard"):
        make("atp-online", guard=True).adapter(model, SourceInfo(rates={"all": some}))
    make("atp-online", guard=True).adapter(model, SourceInfo(rates={"all": zeros}))  # nothing to guard
