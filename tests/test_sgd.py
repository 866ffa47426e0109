import subprocess
import sys

import pytest
import torch
from torch import Tensor

from ttpfl.util.sgd import SGD

TRAIN_ONE_ROUND = """
import sys, torch
from ttpfl.federation import TrainSettings, train
client = torch.randn(8, 3), torch.randint(2, (8,))
train(torch.nn.Linear(3, 2), [client], TrainSettings(rounds=1, batch_size=4, workers=0, momentum=0.9))
assert "torch._dynamo" not in sys.modules
"""


@pytest.mark.parametrize("weight_decay", [0.0, 0.03])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_bits_of_torchs_own(momentum: float, weight_decay: float) -> None:
    draw = torch.Generator().manual_seed(0)
    ours = [torch.randn(shape, generator=draw) for shape in ((3, 4), (7,), ())]
    theirs = [parameter.clone().requires_grad_() for parameter in ours]
    sgd = SGD(ours, 0.3, momentum, weight_decay)
    expected = torch.optim.SGD(theirs, 0.3, momentum=momentum, weight_decay=weight_decay)
    for step in range(6):
        gradients: list[Tensor | None] = [torch.randn(p.shape, generator=draw) for p in ours]
        gradients[step % 3] = None  # nothing depended on this one
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        before = [None if gradient is None else gradient.clone() for gradient in gradients]
        sgd.step(gradients)
        expected.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        for gradient, old in zip(gradients, before, strict=True):
            assert gradient is old is None or torch.equal(gradient, old)


def test_training_does_not_wait_for_torchs_compiler() -> None:
    """It takes as long to import as all the rest."""
    done = subprocess.run([sys.executable, "-c", TRAIN_ONE_ROUND], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
