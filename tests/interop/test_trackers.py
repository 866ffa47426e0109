"""Experiment trackers get the metrics of every round, without a callback of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.helpers.interop import needs
from ttpfl.federation import Metrics, TrainSettings, train

ROUNDS = 3


def clients() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {name: (torch.randn(12, 4), torch.arange(12) % 2) for name in ("north", "south")}


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its database takes more packages
    mlflow = needs("mlflow")
    mlflow.set_tracking_uri(tmp_path.as_uri())
    mlflow.set_experiment("train")
    settings = TrainSettings(rounds=ROUNDS, workers=0)
    with mlflow.start_run() as run:
        history = train(nn.Linear(4, 2), clients(), settings, callbacks=[Metrics(mlflow.log_metrics)]).history
    for name in ("train_loss", "validation_loss"):
        kept = mlflow.MlflowClient().get_metric_history(run.info.run_id, name)
        assert [(entry.step, entry.value) for entry in kept] == [
            (record["round"], record[name]) for record in history
        ]


TRACKED = """
import json, sys, torch, wandb
from torch import nn
from ttpfl.federation import Metrics, TrainSettings, train

clients = {"north": (torch.randn(12, 4), torch.arange(12) % 2)}
settings = TrainSettings(rounds=3, workers=0)
with wandb.init(project="rates", mode="offline", dir=sys.argv[1]) as run:
    history = train(nn.Linear(4, 2), clients, settings, callbacks=[Metrics(run.log)]).history
print(json.dumps([record["train_loss"] for record in history]))
"""


def test_wandb(tmp_path: Path) -> None:
    needs("wandb")
    # In a process of its own, since the log is complete when the process has ended.
    done = subprocess.run(
        [sys.executable, "-c", TRACKED, tmp_path],
        env=os.environ | {"WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")  # protocol buffers with numbers as text
    content, losses = log.read_bytes(), json.loads(done.stdout)
    assert len(set(losses)) == 3
    positions = [content.find(str(loss).encode()) for loss in losses]
    assert positions == sorted(positions)
    assert positions[0] > 0
