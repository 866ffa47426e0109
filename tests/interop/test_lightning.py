"""A LightningModule: before and after it was trained, which attaches a trainer to it."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ttpfl
from tests.helpers.interop import CLASSES, Batch, check_all, needs

lightning = needs("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # of a trainer without devices, loggers and workers


class Classifier(lightning.LightningModule):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(
            nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.SiLU(), nn.Flatten(), nn.LazyLinear(CLASSES)
        )
        self.network(torch.zeros(2, 3, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: Any, index: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def images(count: int) -> Batch:
    return torch.randn(count, 3, 8, 8)


def trained(folder: Path) -> Classifier:
    model, data = Classifier(), TensorDataset(images(32), torch.randint(CLASSES, (32,)))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, enable_model_summary=False, default_root_dir=folder, **quiet
    )
    trainer.fit(model, DataLoader(data, batch_size=8))
    return model


@pytest.mark.parametrize("steps", [False, True], ids=["fresh", "trained"])
def test_module(steps: bool, tmp_path: Path) -> None:
    check_all(trained(tmp_path) if steps else Classifier(), images, tmp_path)


def test_rates_of_a_module_fit_its_checkpoint(tmp_path: Path) -> None:
    model = trained(tmp_path)
    rates = ttpfl.Rates.zeros(model)
    rates.save(tmp_path / "rates.safetensors")
    again = Classifier()
    again.load_state_dict(model.state_dict())
    assert ttpfl.Rates.load(tmp_path / "rates.safetensors", model=again).weights_hash == rates.weights_hash
