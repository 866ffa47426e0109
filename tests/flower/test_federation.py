"""End to end on 127.0.0.1: superlink, three sites, TLS, node keys, and a search for rates."""

from pathlib import Path

from tests.helpers.flower.in_process import NAMES, largest_difference
from tests.helpers.flower.real_federation import (
    SEARCH,
    audit,
    federation_of_digits,
    history,
    learn_over,
    learned_here,
)
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings
from ttpfl.flower import loopback


def test_rates_learned_over_real_sites_are_the_local_ones(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with federation_of_digits(tmp_path / "trial") as federation:
        assert set(loopback.status(federation)) == {"superlink", *NAMES}
        done = learn_over(federation, out, *SEARCH, "--rounds", "4")
        assert done.returncode == 0, done.stderr
        again = learn_over(federation, out, *SEARCH, "--rounds", "4")
        assert again.returncode == 1
        assert "already has a run: resume it" in again.stderr
    found = Rates.load(out / "rates.safetensors")
    local = learned_here(federation, LearnSettings(rounds=4, batch_size=6, workers=0, check=False))
    assert largest_difference(found.values, local.rates.values) < 1e-6
    assert float(local.rates.values.abs().max()) > 1e-3
    assert found.learned["rounds"] == len(local.history) == 4
    assert [record["failed"] for record in history(out)] == [[] for _ in local.history]
    for name in NAMES:
        _check_what_left(audit(federation, name))
    assert not (Path.home() / ".flwr").exists() or not list((Path.home() / ".flwr").glob("apps/ttpfl*"))


def _check_what_left(lines: list[dict[str, object]]) -> None:
    """A site's own record of its messages: the model came once, and only rates and sums went."""
    lines = [line for line in lines if line["type"] != "query.nudge"]  # empty, for sites that take long
    came = [line["type"] for line in lines if line["direction"] == "in"]
    assert came[:2] == ["train.task", "query.model"]
    assert set(came[2:]) == {"train.task"}
    assert len(came) >= 5  # a site that takes long may get a task twice
    for line in lines:
        if line["direction"] == "out" and line["type"] == "train.task" and "records" in line:
            records = line["records"]
            assert records.keys() == {"arrays", "metrics", "about"}  # type: ignore[attr-defined]
            assert records["arrays"].keys() == {"vector"}  # type: ignore[index]
            assert records["arrays"]["vector"]["shape"] == [23]  # type: ignore[index]
            assert records["metrics"].keys() == {  # type: ignore[index]
                "validation.samples",
                "validation.loss",
                "validation.right",
            }
        elif line["direction"] == "out":
            assert "lacks the model" in str(line.get("error")) or line.get("records") == {}
