"""Signals at real sites: `ttpfl train --input-shape`, then `ttpfl learn`, then `ttpfl personalize`."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.flower.in_process import NAMES, largest_difference, local_clients
from tests.helpers.flower.real_federation import DEADLINE, PATIENCE, connected
from tests.helpers.persons import signals
from ttpfl.core.personalizer import Personalizer
from ttpfl.core.rates import Rates
from ttpfl.federation import TrainSettings, train
from ttpfl.models import load_model

pytestmark = pytest.mark.slow

MEAN, STD, SCALE = (0.1, -0.1), (1.2, 0.9), 0.001


def ttpfl(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ttpfl", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_signals_at_sites_to_predictions(tmp_path: Path) -> None:
    sites = [signals(persons=1, samples=60, seed=seed) for seed in range(len(NAMES))]
    new = signals(persons=1, samples=30, seed=9)["x"]
    np.save(tmp_path / "new.npy", new)
    home, model_file = tmp_path / "trial", tmp_path / "model" / "model.safetensors"
    more = f"mean = {list(MEAN)}\nstd = {list(STD)}\nscale = {SCALE}\n"
    with connected(home, [{"x": site["x"], "y": site["y"]} for site in sites], more=more) as federation:
        over = ("--engine", "flower", "--federation", str(home), "--deadline", DEADLINE, "--batch-size", "6")
        network = ("--model", "signal_cnn", "--classes", "3", "--input-shape", "2x16")
        ttpfl("train", *over, *network, "--rounds", "2", "--lr", "0.05", "--out", str(tmp_path / "model"))
        ttpfl("learn", str(model_file), *over, "--rounds", "2", "--out", str(tmp_path / "rates"))
    clients = local_clients({name: federation.site(name) / "site.toml" for name in NAMES})
    begin, _ = load_model(tmp_path / "model" / "begin.safetensors")
    here = train(begin, clients, TrainSettings(rounds=2, lr=0.05, batch_size=6, workers=0)).model
    model, card = load_model(model_file)
    assert card["build"]["input_shape"] == [2, 16]
    for name, tensor in model.state_dict().items():
        assert largest_difference(tensor, here.state_dict()[name]) < 1e-6, name
    told = ("--mean", "0.1,-0.1", "--std", "1.2,0.9", "--scale", "0.001")
    rates = tmp_path / "rates" / "rates.safetensors"
    said = ttpfl(
        "personalize", str(tmp_path / "new.npy"), "--model", str(model_file), "--rates", str(rates), *told
    )
    x = (new * SCALE - np.array(MEAN)[:, None]) / np.array(STD)[:, None]
    personal = Personalizer(model.eval(), Rates.load(rates, model=model))
    logits = torch.cat([personal(batch) for batch in torch.from_numpy(x).float().split(20)])
    _, *rows = csv.reader(io.StringIO(said))
    assert [row[1] for row in rows] == [str(number) for number in logits.argmax(1).tolist()]
