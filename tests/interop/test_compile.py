"""torch.compile with its default backend, which needs a C++ compiler."""

import shutil
import warnings

import pytest
import torch
from torch import Tensor, nn

import ttpfl
from tests.helpers.interop import BATCH, CLASSES, client, some_rates

reason = "torch.compile needs a C++ compiler: apt install g++"
pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason=reason),
    pytest.mark.filterwarnings("ignore"),  # of torch's own modules
]


def images(count: int) -> Tensor:
    return torch.randn(count, 3, 8, 8)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, CLASSES)
    )


def test_a_model_that_was_compiled_and_used() -> None:
    model, x = network().eval(), images(BATCH)
    rates = some_rates(model)
    expected = ttpfl.Personalizer(model, rates)(x)
    compiled = torch.compile(model)
    torch.testing.assert_close(compiled(x), model(x))
    assert torch.equal(ttpfl.Personalizer(compiled, rates)(x), expected)
    clients = [client(images) for _ in range(3)]
    with warnings.catch_warnings(action="ignore"):  # there is nothing to gain
        learned = [ttpfl.learn_rates(each, clients, rounds=2) for each in (model, compiled)]
    assert torch.equal(learned[0].values, learned[1].values)
    assert learned[0].fingerprint == learned[1].fingerprint


def test_a_snapshot_can_be_compiled() -> None:
    model = network()
    personal, x = ttpfl.Personalizer(model, some_rates(model), mode="online"), images(BATCH)
    logits = personal(x)
    torch.testing.assert_close(torch.compile(personal.adapted_model().eval())(x), logits)
