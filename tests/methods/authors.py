"""The authors' figures, for the methods that they ran as rivals: client 0 in three batches of 20."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ttpfl
from conftest import SHARED
from ttpfl.methods import Knowledge, Method

FILE = SHARED / "golden" / "atp_shallow_cnn.npz"
needs_figures = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE.name} is not beside the repository")


def figure(name: str) -> Tensor:
    with np.load(FILE) as file:
        return torch.from_numpy(file[name])


def model() -> nn.Module:
    with np.load(FILE) as file:
        weights = {key[2:]: torch.from_numpy(file[key]) for key in file.files if key.startswith("w.")}
    model = ttpfl.models.shallow_cnn(10)
    model.load_state_dict(weights)
    return model.eval()


def batches(client: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(figure(f"x{client}").split(20), figure(f"y{client}").split(20), strict=True))


def answers(method: Method, knowledge: Knowledge | None = None) -> Tensor:
    personal = method.personal(model(), knowledge or Knowledge())
    return torch.cat([personal(x) for x, _ in batches(0)])


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest of their numbers."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()
