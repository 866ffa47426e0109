from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.untouched import untouched
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods import Adapter, Method, SourceInfo, base, method, tunable
from ttpfl.methods.tuning import tune

TRUTH = 0.3  # the label says whether x is above it


class Threshold(nn.Module):
    """Says class 1 above 0."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.0, 1.0]))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, None] * self.weight


@pytest.fixture(autouse=True)
def _made_up() -> Iterator[None]:
    """A method that moves the threshold; the best place is known."""

    @method("made-up")
    @dataclass(frozen=True)
    class MadeUp(Method):
        shift: float = tunable(0.0, "of the threshold", grid=(-0.2, 0.1, 0.3, 0.8))
        noise: float = tunable(0.0, "of the threshold, drawn for every batch")
        kind: str = tunable("a", "is of no consequence")

        def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
            return Moved(model, self)

    class Moved(Adapter):
        def __init__(self, model: nn.Module, config: Any) -> None:
            super().__init__(model)
            self.config = config

        def adapt(self, batch: Tensor) -> Tensor:
            if self.config.shift > 5:
                raise BatchError("too far")
            return self.model(batch - self.config.shift - self.config.noise * torch.randn(()))

        def reset(self) -> None:
            pass

    @method("learner")
    @dataclass(frozen=True)
    class Learner(Method):
        """Nears the truth with every batch, after it has answered."""

        speed: float = tunable(0.1, "part of the way in each step")
        limit: int | None = tunable(None, "steps that it takes at most")

        def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
            return Learning(model, self)

    class Learning(Adapter):
        def __init__(self, model: nn.Module, config: Any) -> None:
            super().__init__(model)
            self.config, self.place, self.steps = config, 0.0, 0

        def adapt(self, batch: Tensor) -> Tensor:
            logits = self.model(batch - self.place)
            if self.config.limit is None or self.steps < self.config.limit:
                self.place += self.config.speed * (TRUTH - self.place)
                self.steps += 1
            return logits

        def reset(self) -> None:
            self.place, self.steps = 0.0, 0

    yield
    del base._methods["made-up"]
    del base._methods["learner"]


def clients(count: int = 4, size: int = 50) -> list[tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    xs = [torch.rand(size + 7 * number, generator=draw) * 2 - 1 for number in range(count)]
    return [(x, (x > TRUTH).long()) for x in xs]


def test_the_best_value_is_found_and_the_whole_table_recorded() -> None:
    model, streams = Threshold(), clients()
    with untouched(model):
        found = tune("made-up", None, model, SourceInfo(), streams, workers=1)
    assert found.best.shift == 0.3
    assert found.at_edge == []
    assert [row["shift"] for row in found.table] == [-0.2, 0.1, 0.3, 0.8]
    for row in found.table:
        of_clients = [((x > row["shift"]) == (y == 1)).double().mean().item() for x, y in streams]
        assert row["clients"] == pytest.approx(of_clients)
        assert row["accuracy"] == pytest.approx(sum(of_clients) / len(of_clients))  # clients, not samples
        assert row["error"] == ""
    assert found.table[2]["accuracy"] == 1


def test_the_number_of_workers_and_of_threads_makes_no_difference() -> None:
    grid = {"shift": (0.1, 0.3), "noise": (0.0, 0.2, 0.4)}
    results = []
    for workers, threads in [(1, 1), (2, 1), (3, 2)]:
        torch.set_num_threads(threads)
        torch.rand(threads)  # what was drawn before does not matter
        results.append(tune("made-up", grid, Threshold(), SourceInfo(), clients(), workers=workers))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(1)
    assert results[0] == results[1] == results[2]
    again = tune("made-up", grid, Threshold(), SourceInfo(), clients(), workers=1, seed=1)
    assert again.table != results[0].table  # the noise is drawn, and follows the seed


@pytest.mark.parametrize(
    ("depends", "wanted"),
    [
        (None, [-0.2, 0.1, 0.3, 0.8]),  # as Surgical: which block is best depends on the step size
        (lambda candidate: candidate.shift > 0, [-0.2, 0.1]),
        (lambda candidate: "", [-0.2]),  # as BBSE
    ],
)
def test_source_clients_are_asked_when_the_question_is_another(
    depends: Any, wanted: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(base._methods["made-up"], "needs_source", True)
    if depends is not None:
        monkeypatch.setattr(base._methods["made-up"], "summary_key", depends)

    def source_info(candidate: Any) -> SourceInfo:
        asked.append(candidate.shift)
        return SourceInfo()

    tune("made-up", None, Threshold(), source_info, clients(), workers=1)
    assert asked == wanted


def test_a_method_that_learns_is_seen_over_as_many_batches_as_it_will_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first batch of its one client a slow learner has learned nothing: all would be equal."""
    stream = (torch.linspace(-1, 1, 40), (torch.linspace(-1, 1, 40) > TRUTH).long())
    grid = {"speed": (0.0, 0.1, 0.5)}
    once = tune("learner", grid, Threshold(), SourceInfo(), [stream], batch_size=40, passes=1, workers=1)
    assert len({row["accuracy"] for row in once.table}) == 1
    assert once.best.speed == 0.1  # the default
    found = tune("learner", grid, Threshold(), SourceInfo(), [stream], batch_size=40, passes=4, workers=1)
    # After its first batch the threshold is nearer to the truth by this part of the way, and so on.
    for row, speed in zip(found.table, grid["speed"], strict=True):
        places = [TRUTH * (1 - (1 - speed) ** batch) for batch in range(4)]
        right = [((stream[0] > place) == (stream[1] == 1)).double().mean().item() for place in places]
        assert row["accuracy"] == pytest.approx(sum(right) / 4)
    assert found.best.speed == 0.5
    assert found.at_edge == ["speed"]
    monkeypatch.setattr(base._methods["learner"], "stateful", False)  # it said that it does not learn
    found = tune("learner", grid, Threshold(), SourceInfo(), [stream], batch_size=40, passes=4, workers=1)
    assert found.table == once.table


def test_large_grids_are_searched_one_by_one() -> None:
    grid = {"noise": (0.3, 0.0), "shift": tuple(n / 20 for n in range(-18, 19)), "kind": ("b", "a")}
    found = tune("made-up", grid, Threshold(), SourceInfo(), clients(), workers=1)
    tried = [(row["noise"], row["shift"], row["kind"]) for row in found.table]
    assert tried[:2] == [(0.3, 0.0, "a"), (0.0, 0.0, "a")]  # the others at their defaults
    assert tried[2:39] == [(0.0, shift, "a") for shift in grid["shift"]]
    assert tried[39:] == [(0.0, 0.3, "b"), (0.0, 0.3, "a")]
    assert (found.best.noise, found.best.shift, found.best.kind) == (0.0, 0.3, "a")
    assert found.at_edge == ["noise"]


def test_no_limit_is_the_largest_value() -> None:
    grid = {"limit": (1, 2, None)}
    found = tune("learner", grid | {"speed": (0.5,)}, Threshold(), SourceInfo(), clients(), workers=1)
    assert found.best.limit is None
    assert found.at_edge == ["limit"]


def test_every_combination_in_the_grids_order_and_ties_go_to_the_default_then_to_the_first() -> None:
    grid = {"kind": ("b", "a", "c"), "shift": (0.0, 0.3, 0.3, 0.5)}
    found = tune("made-up", grid, Threshold(), SourceInfo(), clients(), workers=1)
    assert [(row["kind"], row["shift"]) for row in found.table] == [
        (kind, shift) for kind in ("b", "a", "c") for shift in (0.0, 0.3, 0.3, 0.5)
    ]
    assert (found.best.kind, found.best.shift, found.best.noise) == ("a", 0.3, 0.0)
    without = tune("made-up", {"kind": ("c", "b")}, Threshold(), SourceInfo(), clients(), workers=1)
    assert without.best.kind == "c"


@pytest.mark.parametrize(
    ("values", "edge"),
    [
        ((0.3, 0.5, 0.6), True),
        ((-1.0, 0.0, 0.3), True),
        ((0.5, 0.3, 0.0), False),
        ((0.5, 0.4, 0.3), True),
        ((0.0, 0.3, 0.6), False),
        ((0.3, 0.0, 0.6), False),  # in no order
        ((0.3,), False),  # no choice
    ],
)
def test_a_choice_at_the_edge_is_reported(values: tuple[float, ...], edge: bool) -> None:
    grid = {"shift": values, "kind": ("a", "b")}
    found = tune("made-up", grid, Threshold(), SourceInfo(), clients(), workers=1)
    assert found.best.shift == 0.3
    assert found.at_edge == (["shift"] if edge else [])


def test_a_combination_that_fails_is_no_choice() -> None:
    found = tune("made-up", {"shift": (9.0, 0.8)}, Threshold(), SourceInfo(), clients(), workers=1)
    assert found.best.shift == 0.8
    assert found.table[0] == {"shift": 9.0, "accuracy": 0.0, "clients": [0.0] * 4, "error": "too far"}
    with pytest.raises(MethodError, match="made-up fails with every combination of the grid: too far"):
        tune("made-up", {"shift": (8.0, 9.0)}, Threshold(), SourceInfo(), clients(), workers=1)


def test_methods_without_a_grid_and_with_progress() -> None:
    seen: list[tuple[int, int]] = []
    found = tune(
        "none", None, Threshold(), SourceInfo(), clients(2), workers=1, progress=lambda *at: seen.append(at)
    )
    assert len(found.table) == 1
    assert found.at_edge == []
    assert seen == [(1, 2), (2, 2)]


def test_what_does_not_fit() -> None:
    model, streams = Threshold(), clients(1)
    with pytest.raises(MethodError, match="unknown hyper-parameter 'shft'"):
        tune("made-up", {"shft": (1,)}, model, SourceInfo(), streams)
    with pytest.raises(MethodError, match="no value for 'shift'"):
        tune("made-up", {"shift": ()}, model, SourceInfo(), streams)
    with pytest.raises(MethodError, match="no source clients"):
        tune("made-up", None, model, SourceInfo(), [])
    with pytest.raises(MethodError, match="no source clients"):
        tune("made-up", None, model, SourceInfo(), [(torch.zeros(0), torch.zeros(0))])
