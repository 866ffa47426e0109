"""Modules are discovered, never listed by hand."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.helpers.networks import make
from ttpfl.core.network import describe, fingerprint, weights_hash


def names(model: nn.Module) -> list[str]:
    return [spec.name for spec in describe(model)]


def movable_keys(model: nn.Module) -> list[str]:
    return [key for key in model.state_dict() if not key.endswith("num_batches_tracked")]


@pytest.mark.parametrize("name", ["cnn", "resnet", "bottleneck", "groupnorm", "vit", "mlp"])
def test_state_dict_order(name: str) -> None:
    model = make(name)
    assert names(model) == movable_keys(model)
    assert list(ttpfl.Rates.zeros(model).names) == movable_keys(model)
    assert all(spec.shape == tuple(model.state_dict()[spec.name].shape) for spec in describe(model))


def test_sizes_of_the_papers_networks() -> None:
    assert len(describe(ttpfl.models.shallow_cnn(10))) == 23
    assert len(describe(ttpfl.models.resnet18(10))) == 102


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.BatchNorm1d(4), ["weight", "bias", "running_mean", "running_var"]),
        (nn.BatchNorm3d(4, affine=False), ["running_mean", "running_var"]),
        (nn.BatchNorm2d(4, track_running_stats=False), ["weight", "bias"]),
        (nn.BatchNorm2d(4, affine=False, track_running_stats=False), []),
        (nn.InstanceNorm2d(4), []),
        (nn.InstanceNorm2d(4, track_running_stats=True), ["running_mean", "running_var"]),
        (nn.GroupNorm(2, 4), ["weight", "bias"]),
        (nn.LayerNorm(4), ["weight", "bias"]),
        (nn.Embedding(7, 4), ["weight"]),
        (
            nn.MultiheadAttention(4, 2),
            ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"],
        ),
    ],
)
def test_layer_types(layer: nn.Module, expected: list[str]) -> None:
    assert names(layer) == expected


def test_frozen_parameters_are_left_out_and_statistics_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert ttpfl.Rates.zeros(model).names == ("1.running_mean", "1.running_var")


def test_shared_parameters_count_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    assert names(model) == ["0.weight", "0.bias", "1.bias"]


def test_plain_parameters_and_other_buffers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))
            self.register_buffer("positions", torch.arange(4.0))
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x * self.scale + self.positions)

    assert names(Net()) == ["scale", "head.weight", "head.bias"]
    assert describe(Net())[0].kind == "parameter"


def test_nothing_to_adapt_is_said() -> None:
    with pytest.raises(ttpfl.RatesError, match="nothing to adapt with only='stats'"):
        ttpfl.Rates.zeros(nn.Linear(3, 2), only="stats")


def test_lazy_layers_are_refused() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ttpfl.ModelError, match=r"'0.weight' is not initialised.*sample batch"):
        ttpfl.Rates.zeros(model)


def test_blocks() -> None:
    def blocks(model: nn.Module) -> list[str]:
        return list(dict.fromkeys(spec.block for spec in describe(model)))

    assert blocks(ttpfl.models.resnet18(10)) == ["conv1", "layer1", "layer2", "layer3", "layer4", "fc"]
    assert blocks(ttpfl.models.shallow_cnn(10)) == ["conv1", "conv2", "conv3", "linear4", "linear5"]
    assert blocks(make("vit")) == ["token", "positions", "patches", "blocks.0", "blocks.1", "head"]
    assert blocks(nn.Sequential(ttpfl.models.resnet18(10)))[:2] == ["0.conv1", "0.layer1"]


def test_kinds() -> None:
    kinds = {spec.name: spec.kind for spec in describe(ttpfl.models.shallow_cnn(10))}
    assert kinds["conv1.weight"] == "conv.weight"
    assert kinds["bn4.running_var"] == kinds["bn1.running_var"] == "batchnorm.running_var"
    assert kinds["linear5.bias"] == "linear.bias"


def test_fingerprint_is_of_the_architecture_and_the_hash_of_the_weights() -> None:
    one, other = ttpfl.models.shallow_cnn(10), ttpfl.models.shallow_cnn(10)
    assert fingerprint(one, describe(one)) == fingerprint(other, describe(other))
    assert weights_hash(one) != weights_hash(other)
    other.load_state_dict(one.state_dict())
    assert weights_hash(one) == weights_hash(other)
    other.bn1.running_mean[3] += 1e-6
    assert weights_hash(one) != weights_hash(other)
    frozen = fingerprint(one.requires_grad_(False), describe(one))
    assert frozen == fingerprint(other, describe(other))
    other.bn1.eps = 1e-3
    assert fingerprint(other, describe(other)) != frozen
    few, many = nn.Sequential(nn.GroupNorm(2, 8)), nn.Sequential(nn.GroupNorm(4, 8))
    assert describe(few) == describe(many)
    assert fingerprint(few, describe(few)) != fingerprint(many, describe(many))


HASH_OF_A_NETWORK_WITH_A_SET = """
from torch import nn
from ttpfl.core.network import model_hash

layer = nn.ReLU()
layer.kinds = {"cat", "dog", "horse", "ship", "truck"}
print(model_hash(layer))
"""


def test_the_hash_of_a_model_is_the_same_in_every_process() -> None:
    def hash_with(seed: str) -> str:
        program = [sys.executable, "-c", HASH_OF_A_NETWORK_WITH_A_SET]
        own = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(program, env=own, capture_output=True, text=True, check=True).stdout

    assert hash_with("1") == hash_with("2")
