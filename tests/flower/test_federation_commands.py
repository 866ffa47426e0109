"""The README's commands for a federation, from an empty folder, each a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import largest_difference, local_clients
from real_federation import PATIENCE, history, processes_below

from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.flower.folder import Federation
from ttpfl.flower.order import Order
from ttpfl.models import load_model
from ttpfl.rates import Rates

pytestmark = pytest.mark.slow


def test_train_and_learn_over_a_federation_of_our_own(tmp_path: Path) -> None:
    def ttpfl(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "ttpfl", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    over = ("--engine", "flower", "--federation", "trial")
    ttpfl("flower", "init", "trial", "--sites", "3", "--data", "digits")
    try:
        said = ttpfl("flower", "up", "trial")
        assert said.count("registered, connected since") == 3
        sizes = ("--classes", "10", "--image-size", "28")
        ttpfl("train", *over, *sizes, "--rounds", "2", "--out", "runs/model")
        ttpfl("learn", "runs/model/model.safetensors", *over, "--rounds", "1", "--out", "runs/rates")
    finally:
        said = ttpfl("flower", "down", "trial")
    assert said.count("does not run here") == 4
    assert processes_below(tmp_path / "trial") == {}
    _compare_with_the_local_engine(tmp_path / "trial", tmp_path / "runs")


def _compare_with_the_local_engine(home: Path, runs: Path) -> None:
    def here(order: Order) -> dict[str, Any]:
        return order.settings | {"workers": 0}

    federation = Federation.read(home)
    clients = local_clients({name: federation.site(name) / "site.toml" for name in federation.sites})
    order = Order.read(runs / "model" / "order.json")
    begin, _ = load_model(order.model)
    wanted = train(begin, list(clients.values()), TrainSettings(**here(order))).model.state_dict()
    model, _ = load_model(runs / "model" / "model.safetensors")
    for name, tensor in model.state_dict().items():
        assert largest_difference(tensor, wanted[name]) < 1e-6, name
    moved = [torch.dist(a, b) for a, b in zip(begin.parameters(), model.parameters(), strict=True)]
    assert min(moved) > 0
    settings = LearnSettings(**here(Order.read(runs / "rates" / "order.json")))
    rates = Rates.load(runs / "rates" / "rates.safetensors", model=model)
    assert largest_difference(rates.values, learn(model, clients, settings).rates.values) < 1e-6
    assert [record["failed"] for run in ("model", "rates") for record in history(runs / run)] == [[], [], []]
