"""Whoever watches a recipe sees its stages in their order, and how far each one is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.own_clients import OWN, own_clients
from ttpfl.experiment.context import ExperimentContext
from ttpfl.experiment.recipe import read
from ttpfl.experiment.run import run
from ttpfl.experiment.store import Store
from ttpfl.federation.checkpoints.progress import Advance


class Watcher:
    """Notes what it is shown: titles, and below them what was told."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[object, ...]]] = {}

    @contextmanager
    def __call__(self, title: str, unit: str) -> Iterator[Advance]:
        told = self.seen.setdefault(title, [])

        def advance(done: int, total: int | None, figures: str = "", /) -> None:
            told.append((unit, done, total, figures.split()[0] if figures else ""))

        yield advance


def watched(folder: Path, recipe: str, *changes: str) -> dict[str, list[tuple[object, ...]]]:
    watcher = Watcher()
    (folder / "own.toml").write_text(recipe)
    own_clients(folder / "data", 0)
    context = ExperimentContext(Store(folder / "stages"), folder / "data", workers=0, watch=watcher)
    run(read(folder / "own.toml", changes=changes), context, folder / "out")
    return watcher.seen


def test_stages_are_counted_over_all_cases(tmp_path: Path) -> None:
    cases = "cases = { a = {}, b = { train.lr = 0.02 } }"
    recipe = OWN.replace('"atp-batch"', '"em", "atp-batch"') + cases
    assert list(watched(tmp_path, recipe, "tune.clients=1", "only=['a', 'b']")) == [
        "stage 1 of 10 (case a, seed 0): building clients",
        "stage 2 of 10 (case a, seed 0): training the model",
        "stage 3 of 10 (case a, seed 0): learning rates",
        "stage 4 of 10 (case a, seed 0): tuning em",
        "stage 5 of 10 (case a, seed 0): comparing methods",
        "stage 7 of 10 (case b, seed 0): training the model",  # the clients are there
        "stage 8 of 10 (case b, seed 0): learning rates",
        "stage 9 of 10 (case b, seed 0): tuning em",
        "stage 10 of 10 (case b, seed 0): comparing methods",
    ]


def test_each_stage_tells_how_far_it_is(tmp_path: Path) -> None:
    assert watched(tmp_path, OWN, "train.rounds=2") == {
        "stage 1 of 4: building clients": [],
        "stage 2 of 4: training the model": [("round", 1, 2, "loss"), ("round", 2, 2, "loss")],
        "stage 3 of 4: learning rates": [("round", 1, 1, "validation")],
        # The only target client with labels, once for each method.
        "stage 4 of 4: comparing methods": [
            ("evaluation", 1, 2, "none"),
            ("evaluation", 2, 2, "atp-batch"),
        ],
    }
    again = watched(tmp_path, OWN, "train.rounds=2")
    assert list(again) == ["stage 1 of 4: building clients", "stage 4 of 4: comparing methods"]
    assert not any(again.values())  # everything was there
