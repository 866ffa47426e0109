import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.helpers import small_population
from tests.helpers.untouched import untouched
from ttpfl import data, models
from ttpfl.cli.output import plain
from ttpfl.core.rates import Rates
from ttpfl.errors import BatchError, DataError, MethodError
from ttpfl.evaluation import Comparison, Evaluator, compare, gather
from ttpfl.evaluation.metrics import figures
from ttpfl.evaluation.streams import ALL_ORDERS, order_of
from ttpfl.evaluation.summary import Spread, average_ranks, interval, lead, lines
from ttpfl.methods import Adapter, Method, SourceInfo, make, method
from ttpfl.methods.base import _methods
from ttpfl.results.files import load


@pytest.fixture(scope="module")
def federated(tmp_path_factory: pytest.TempPathFactory) -> data.Federated:
    return small_population.population(small_population.made_images(), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return small_population.network()


@pytest.fixture
def evaluator(federated: data.Federated) -> Evaluator:
    return Evaluator(federated.population.target, federated.target_labels, batch_size=32)


def test_figures_against_slow_formulas() -> None:
    logits, labels = 3 * torch.randn(200, 5, dtype=torch.float64), torch.randint(5, (200,))
    found = figures(logits, labels)
    p = [[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in logits.tolist()]
    right = [row.index(max(row)) == label for row, label in zip(p, labels.tolist(), strict=True)]
    assert found["accuracy"] == pytest.approx(sum(right) / 200)
    assert found["loss"] == pytest.approx(
        -sum(math.log(row[c]) for row, c in zip(p, labels.tolist(), strict=True)) / 200
    )
    assert found["entropy"] == pytest.approx(-sum(v * math.log(v) for row in p for v in row) / 200)
    ece = 0.0
    for low in range(15):
        inside = [i for i, row in enumerate(p) if low <= 15 * max(row) < low + 1]
        if inside:
            confidence = sum(max(p[i]) for i in inside) / len(inside)
            ece += len(inside) / 200 * abs(confidence - sum(right[i] for i in inside) / len(inside))
    assert found["ece"] == pytest.approx(ece)


def test_orders_only_change_the_order() -> None:
    labels = np.random.default_rng(1).integers(5, size=300)
    for name in ("iid", "recorded", "label-sorted", "mixed"):
        order = order_of(name, labels, (0,))
        assert sorted(order.tolist()) == list(range(300))
        assert np.array_equal(order, order_of(name, labels, (0,)))

    def changes(name: str) -> int:
        return int((np.diff(labels[order_of(name, labels, (0,))]) != 0).sum())

    assert np.array_equal(order_of("recorded", labels, (0,)), np.arange(300))
    assert changes("label-sorted") == 4
    assert 4 < changes("mixed") < changes("iid")
    with pytest.raises(DataError, match="did you mean 'mixed'"):
        order_of("mixd", labels, (0,))


@pytest.mark.parametrize("order", ALL_ORDERS)
def test_accuracy_against_a_slow_count(
    evaluator: Evaluator, federated: data.Federated, model: nn.Module, order: str
) -> None:
    ordered = Evaluator(evaluator.target, evaluator.answers, 32, order, seed=3)
    population, answers, _ = federated
    found = compare(model, ordered, [(make("none"), SourceInfo())], workers=0)
    for said, accuracy in zip(found.run["clients"], found.of("none"), strict=True):
        client = next(c for c in population.target if c.id == said["id"])
        x = torch.cat(list(client.stream(7)))
        with torch.no_grad():
            right = (model(x).argmax(1) == answers[client.id]).sum().item()
        assert accuracy == pytest.approx(right / len(x))


@dataclass(frozen=True)
class Guess(Method):
    """Always the same class."""

    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        return _Guess(model)


class _Guess(Adapter):
    def adapt(self, batch: Any) -> Tensor:
        return torch.zeros(len(batch), 10)

    def reset(self) -> None:
        pass


def test_workers_and_interruptions_change_nothing(
    evaluator: Evaluator, federated: data.Federated, model: nn.Module, tmp_path: Path
) -> None:
    bbse = make("bbse")
    known = SourceInfo(gather(bbse, model, federated.population.source, 20, workers=2))
    chosen = [(make("none"), SourceInfo()), (bbse, known), (make("em"), SourceInfo())]

    def figures_of(found: Comparison) -> list[dict[str, Any]]:
        assert [client["id"] for client in found.run["clients"]] == found.setting["clients"]
        costs = ("time", "extra_bytes")
        return [
            {key: value for key, value in entry.items() if key not in costs} for entry in found.run["entries"]
        ]

    with untouched(model):
        alone = figures_of(compare(model, evaluator, chosen, workers=0))
        assert figures_of(compare(model, evaluator, chosen, workers=2)) == alone
        compare(model, evaluator, chosen, workers=0, run_dir=tmp_path)
    rows = tmp_path / "rows.jsonl"
    lines_ = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines_[:4]) + lines_[4][:20])  # killed while writing the fourth row
    done: list[tuple[int, int]] = []
    again = compare(model, evaluator, chosen, run_dir=tmp_path, workers=0, progress=lambda *n: done.append(n))
    assert figures_of(again) == alone
    assert done[0] == (4, 9)
    assert done[-1] == (9, 9)
    more = compare(model, evaluator, [*chosen, (make("t3a"), SourceInfo())], run_dir=tmp_path, workers=0)
    assert figures_of(more)[:3] == alone  # a method can be added
    told = SourceInfo({name: 2 * tensor for name, tensor in known.summary.items()})
    done.clear()
    compare(model, evaluator, [(bbse, told)], run_dir=tmp_path, workers=0, progress=lambda *n: done.append(n))
    assert len(done) == 3  # it knows something else, so that its rows are others
    others = data.federate("digits", shift="hybrid", source_clients=8, target_clients=3, samples=60, seed=9)
    elsewhere = Evaluator(others.population.target, others.target_labels, evaluator.batch_size)
    with pytest.raises(DataError, match="another comparison"):  # though the clients have the same names
        compare(model, elsewhere, chosen, run_dir=tmp_path)
    other = Evaluator(evaluator.target, evaluator.answers, batch_size=8)
    with pytest.raises(DataError, match="another comparison"):
        compare(model, other, chosen, run_dir=tmp_path)


def test_rows_survive_whatever_happens_to_their_file(
    evaluator: Evaluator, model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, path, done = [(make("none"), SourceInfo())], tmp_path / "rows.jsonl", list[tuple[int, int]]()

    def resumed() -> int:
        """How many rows were computed."""
        done.clear()
        compare(model, evaluator, chosen, run_dir=tmp_path, workers=0, progress=lambda *n: done.append(n))
        return len(done)

    assert resumed() == 3
    whole = path.read_bytes()
    head, first, *_ = whole.splitlines(keepends=True)

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full_disk)
        assert resumed() == 0  # a sound file is not written again
        path.write_bytes(whole[:-20])
        with pytest.raises(OSError, match="No space left"):
            resumed()
        assert path.read_bytes() == whole[:-20]  # what there was is still there
    assert resumed() == 1
    for damaged in (b"", head[:20], head[:-1], bytes(100), b"{\n" + first):
        path.write_bytes(damaged)
        assert resumed() == 3
        assert path.read_bytes().startswith(head)
        assert resumed() == 0
    path.write_bytes(whole.replace(first, first[:50] + b"\n"))
    assert resumed() == 1


def test_progress_counts_the_rows_that_were_asked_for(
    evaluator: Evaluator, model: nn.Module, tmp_path: Path
) -> None:
    done = list[tuple[int, int]]()
    for name in ("none", "em"):
        done.clear()
        chosen = [(make(name), SourceInfo())]
        compare(model, evaluator, chosen, run_dir=tmp_path, workers=0, progress=lambda *n: done.append(n))
        assert done == [(1, 3), (2, 3), (3, 3)]


def test_rows_of_another_temperature_are_not_taken_over(
    evaluator: Evaluator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights are the same; rows of a version that did not note more are, with a warning."""
    chosen, path = [(make("none"), SourceInfo())], tmp_path / "rows.jsonl"

    def at(temperature: float) -> nn.Module:
        return small_population.Tempered(small_population.network(), temperature).eval()

    compare(at(1.0), evaluator, chosen, run_dir=tmp_path, workers=0)
    with pytest.raises(DataError, match="another comparison"):
        compare(at(2.0), evaluator, chosen, run_dir=tmp_path, workers=0)
    assert not caplog.records
    head, *rows = path.read_text().splitlines(keepends=True)
    before = {name: value for name, value in json.loads(head)["setting"].items() if name != "network"}
    old = [[row["key"], row["row"]] for row in map(json.loads, rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [before, *old]))  # without checksums
    done = list[tuple[int, int]]()
    compare(at(1.0), evaluator, chosen, run_dir=tmp_path, workers=0, progress=lambda *n: done.append(n))
    assert done == []
    assert "an earlier version, which did not record network: check" in caplog.text
    assert "an earlier version, without a checksum" in caplog.text
    caplog.clear()
    compare(at(1.0), evaluator, chosen, run_dir=tmp_path, workers=0)
    assert "without a checksum" not in caplog.text  # it was written again


def test_a_changed_figure_in_a_row_is_computed_again(
    evaluator: Evaluator, model: nn.Module, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen, path = [(make("none"), SourceInfo())], tmp_path / "rows.jsonl"
    before = compare(model, evaluator, chosen, run_dir=tmp_path, workers=0).of("none")
    lines = path.read_text().splitlines(keepends=True)
    done = list[tuple[int, int]]()
    for number in (1, 2, 3):
        row = json.loads(lines[number])
        row["row"]["accuracy"] += 0.1
        path.write_text("".join([*lines[:number], json.dumps(row) + "\n", *lines[number + 1 :]]))
        found = compare(
            model, evaluator, chosen, run_dir=tmp_path, workers=0, progress=lambda *n: done.append(n)
        )
        assert found.of("none") == before
        assert len(done) == number  # one more each time
    assert "1 rows of" in caplog.text


def test_a_method_comes_once(evaluator: Evaluator, model: nn.Module) -> None:
    """Lines are grouped by name: of two variants they would be one, with the mean of both."""
    twice = [(make(name, **config), SourceInfo()) for name, config in
             (("none", {}), ("em", {"iterations": 1}), ("em", {"iterations": 10}))]  # fmt: skip
    with pytest.raises(DataError, match=r"^em occurs more than once.* a recipe, whose entries have labels"):
        compare(model, evaluator, twice, workers=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_names_the_method_and_the_client(
    evaluator: Evaluator, model: nn.Module, workers: int
) -> None:
    diverging = [(make("none"), SourceInfo()), (make("tent", lr=1e35), SourceInfo())]
    with pytest.raises(
        BatchError, match=r"^tent fails at client 'target-0': the logits .* smaller learning rate"
    ):
        compare(model, evaluator, diverging, workers=workers)


@pytest.mark.parametrize("name", ["none", "em", "tent"])
def test_methods_are_not_blamed_for_a_broken_model(evaluator: Evaluator, name: str) -> None:
    model = small_population.network()
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    with pytest.raises(BatchError, match=rf"^{name} fails at client 'target-0': the model returns logits"):
        compare(model, evaluator, [(make(name), SourceInfo())], workers=0)


@pytest.mark.parametrize("name", ["tent", "atp-batch"])
def test_what_a_model_cannot_process_is_said_in_the_methods_words(evaluator: Evaluator, name: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 10), nn.BatchNorm1d(10)).eval()
    known = SourceInfo(rates={"all": Rates.zeros(model)})
    with pytest.raises(BatchError, match=rf"^{name} fails at client 'target-0': the model cannot process"):
        compare(model, evaluator, [(make(name), known)], workers=0)


def test_summary_of_source_clients_is_their_sum(federated: data.Federated, model: nn.Module) -> None:
    bbse, source = make("bbse"), federated.population.source
    total = gather(bbse, model, source, 20, workers=2)
    samples = sum(client.size("validation") for client in source)
    assert any(float(value.sum()) == pytest.approx(samples) for value in total.values())
    assert gather(make("em"), model, source, 20) == {}


def compared(**accuracies: list[float]) -> Comparison:
    others = {"loss": 1.0, "ece": 0.1, "entropy": 0.5, "time": 2.0, "extra_bytes": 5}
    entries = [
        {"label": name, "accuracy": values, **{figure: len(values) * [it] for figure, it in others.items()}}
        for name, values in accuracies.items()
    ]
    return Comparison({"entries": entries})  # type: ignore[typeddict-item]


def test_without_no_adaptation_nobody_knows_who_is_harmed() -> None:
    found = compared(em=[0.6, 0.55, 0.9])
    (em,) = lines(found)
    assert em.harmed is None
    assert math.isnan(em.difference)
    assert em.interval is None


def test_one_client_gives_no_interval() -> None:
    none, em = lines(compared(none=[0.5], em=[0.6]))
    assert em.difference == pytest.approx(10)
    assert (none.interval, em.interval) == (None, None)
    assert plain(em)["interval"] is None  # null in JSON
    alike = lines(compared(none=[0.5, 0.6], em=[0.75, 0.85]))[1]
    assert alike.interval == (pytest.approx(25), pytest.approx(25))  # truly without width


def test_leads_are_paired_by_client() -> None:
    """By hand: the differences of the two clients are -10 and +30 points."""
    found = compared(em=[0.5, 0.9], tent=[0.6, 0.6])
    ahead, behind = lead(found, "em", "tent"), lead(found, "tent", "em")
    assert ahead == (pytest.approx(10), (pytest.approx(-10), pytest.approx(30)))
    assert behind == (pytest.approx(-10), (pytest.approx(-30), pytest.approx(10)))
    assert not ahead.is_clear
    everywhere = compared(em=[0.5, 0.9], tent=[0.4, 0.6])
    assert lead(everywhere, "em", "tent").is_clear
    assert not lead(everywhere, "tent", "em").is_clear
    assert not lead(compared(em=[0.5], tent=[0.4]), "em", "tent").is_clear


def test_lines_and_ranks() -> None:
    none, em = lines(compared(none=[0.5, 0.6, 0.7], em=[0.6, 0.55, 0.9]))
    assert (none.accuracy, none.harmed, none.difference) == (pytest.approx(60), 0, 0)
    assert em.difference == pytest.approx(100 * (0.1 - 0.05 + 0.2) / 3)
    assert (em.harmed, em.worst_decile, em.time) == (1, pytest.approx(55), 2.0)
    assert em.interval is not None
    assert em.interval[0] < em.difference < em.interval[1]
    tables = [{"a": 3.0, "b": 2.0, "c": 2.0}, {"a": 1.0, "b": 2.0, "c": 3.0}]
    assert average_ranks(tables) == {"a": 2.0, "b": 2.25, "c": 1.75}


def test_mean_and_deviation_over_seeds() -> None:
    """By hand: 60, 63 and 69 have the mean 64 and the variance (16 + 1 + 25) / 2."""
    found = Spread.of([60, 63, 69])
    assert found == (pytest.approx(64), pytest.approx(math.sqrt(21)))
    assert str(found) == "64.00±4.58"
    alone = Spread.of([60])
    assert math.isnan(alone.deviation)
    assert str(alone) == "60.00"


def test_ranks_are_of_the_same_methods_in_every_setting() -> None:
    with pytest.raises(DataError, match=r"settings 0 and 1 do not have the same methods \(em\)"):
        average_ranks([{"none": 50.0, "em": 60.0}, {"none": 50.0}])
    with pytest.raises(DataError, match="no settings: pass at least one"):
        average_ranks([])


def test_average_ranks_of_the_papers_first_table() -> None:
    """CIFAR-10, ResNet-18; SHOT and Tent are equal as printed, but not before they were rounded."""
    table = {
        "none": (69.42, 72.98, 63.68, 7.7),
        "bn-adapt": (73.52, 54.54, 50.42, 7.0),
        "shot": (71.76, 48.13, 44.68, 9.3),
        "tent": (71.761, 50.13, 46.05, 8.3),
        "t3a": (69.53, 71.70, 62.17, 8.0),
        "memo": (72.43, 77.30, 68.07, 4.3),
        "em": (65.18, 80.73, 69.85, 5.0),
        "bbse": (63.98, 79.30, 67.96, 6.7),
        "surgical": (69.85, 76.00, 66.94, 6.3),
        "atp-batch": (73.68, 79.90, 73.05, 2.3),
        "atp-online": (74.06, 81.96, 75.37, 1.0),
    }
    ranks = average_ranks([{name: row[setting] for name, row in table.items()} for setting in range(3)])
    assert {name: round(rank, 1) for name, rank in ranks.items()} == {n: row[3] for n, row in table.items()}


def test_interval_is_that_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(3, 2, 400)
    low, high = interval(values) or (math.nan, math.nan)
    assert low == pytest.approx(values.mean() - 1.96 * values.std() / 20, abs=0.05)
    assert high == pytest.approx(values.mean() + 1.96 * values.std() / 20, abs=0.05)


def test_models_in_training_mode_are_refused(evaluator: Evaluator) -> None:
    with pytest.raises(DataError, match="training mode"):
        compare(models.shallow_cnn(10, image_size=28), evaluator, [(make("none"), SourceInfo())])


def test_results_are_plain_json(evaluator: Evaluator, model: nn.Module, tmp_path: Path) -> None:
    found = compare(model, evaluator, [(make("none"), SourceInfo())], workers=0)
    found.save(tmp_path / "results.json")
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["runs"] == [json.loads(json.dumps(found.run))]
    assert content["runs"][0]["setting"]["batch_size"] == 32
    counts = [client["labels"] for client in content["runs"][0]["clients"]]
    assert counts == [
        np.bincount(evaluator.labels(client), minlength=10).tolist() for client in evaluator.target
    ]
    assert load(tmp_path) == content  # it is what reports are made of


def test_own_methods_are_treated_the_same(evaluator: Evaluator, model: nn.Module) -> None:
    method("guess")(Guess)
    try:
        assert compare(model, evaluator, [(make("guess"), SourceInfo())], workers=0).methods == ["guess"]
        with pytest.raises(MethodError, match="unknown hyper-parameter 'lr' of guess; there are none"):
            make("guess", lr=1)
        with pytest.raises(MethodError, match="unknown hyper-parameter 'name'"):
            make("guess", name="other")
    finally:
        del _methods["guess"]
