import torch
import torch.nn.functional as F

from tests.helpers import networks
from ttpfl.core.torch_overrides import FastLayout, channels_last


def test_group_norm_whose_scale_alone_needs_a_gradient() -> None:
    # torch itself crashes the process for this in the channels_last layout.
    (x, _), *_ = networks.batches("groupnorm")
    gradients = []
    for func in (F.group_norm, torch.group_norm):
        weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        with FastLayout(channels_last=True):
            y = func(channels_last(x), 1, weight, bias)
        gradients.append(torch.autograd.grad(y.square().sum(), [weight, bias]))
    weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    slow = torch.autograd.grad(F.group_norm(x, 1, weight, bias).square().sum(), [weight, bias])
    for fast in gradients:
        torch.testing.assert_close(fast, slow)
