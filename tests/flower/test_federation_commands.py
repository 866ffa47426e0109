"""The tutorial about a federation does what it says."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers.flower.in_process import largest_difference, local_clients
from tests.helpers.flower.real_federation import DEADLINE, PATIENCE, history, processes_below
from tests.helpers.pages import ROOT, blocks, commands
from ttpfl.core.rates import Rates
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.flower.folder import Federation
from ttpfl.flower.run_spec import RunSpec
from ttpfl.models import load_model

pytestmark = pytest.mark.slow

TUTORIAL = ROOT / "docs" / "tutorials" / "hospitals.md"


def test_the_tutorial_from_an_empty_folder(tmp_path: Path) -> None:
    """Every block of the page in its order, each command a process of its own."""
    said: dict[str, str] = {}
    try:
        for kind, block in blocks(TUTORIAL):
            if kind == "python":
                run([sys.executable, "-c", block], tmp_path)
            elif kind == "toml":
                (tmp_path / "trial" / "sites" / "north" / "site.toml").write_text(block)
            else:
                for words, _ in commands(block):
                    said[" ".join(words[:2])] = ttpfl(words + _more_time(words), tmp_path)
    finally:
        if (tmp_path / "trial").exists():
            ended = ttpfl(["flower", "down", "trial"], tmp_path)
    assert said["flower up"].count("registered, connected since") == 3
    assert ended.count("not running here") == 4
    assert processes_below(tmp_path / "trial") == {}
    assert (
        len((tmp_path / "predictions.csv").read_text().splitlines()) == 41
    )  # forty pictures below a heading
    _compare_with_the_local_engine(tmp_path / "trial", tmp_path / "runs")


def _more_time(words: list[str]) -> list[str]:
    """The page's commands are for machines that have nothing else to do."""
    return ["--deadline", DEADLINE] if "--engine" in words else []


def ttpfl(words: list[str], folder: Path) -> str:
    return run([sys.executable, "-m", "ttpfl", *words], folder)


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def _compare_with_the_local_engine(home: Path, runs: Path) -> None:
    def here(order: RunSpec) -> dict[str, Any]:
        return order.settings | {"workers": 0}

    federation = Federation.read(home)
    clients = local_clients({name: federation.site(name) / "site.toml" for name in federation.sites})
    order = RunSpec.read(runs / "model" / "order.json")
    begin, _ = load_model(order.model)
    wanted = train(begin, list(clients.values()), TrainSettings(**here(order))).model.state_dict()
    model, _ = load_model(runs / "model" / "model.safetensors")
    for name, tensor in model.state_dict().items():
        assert largest_difference(tensor, wanted[name]) < 1e-6, name
    moved = [torch.dist(a, b) for a, b in zip(begin.parameters(), model.parameters(), strict=True)]
    assert min(moved) > 0
    settings = LearnSettings(**here(RunSpec.read(runs / "rates" / "order.json")))
    rates = Rates.load(runs / "rates" / "rates.safetensors", model=model)
    assert largest_difference(rates.values, learn(model, clients, settings).rates.values) < 1e-6
    assert [record["failed"] for run in ("model", "rates") for record in history(runs / run)] == [[]] * 6
