"""The user's model is never touched."""

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Fail if anything about the model, or the random state, is different afterwards."""

    def picture() -> list[object]:
        return [
            [
                (m.training, list(m._forward_hooks), list(m._forward_pre_hooks), list(m._backward_hooks))
                for m in model.modules()
            ],
            [(n, p.requires_grad, id(p), id(p.grad)) for n, p in model.named_parameters()],
            [(n, id(b)) for n, b in model.named_buffers()],
            random.getstate(),
        ]

    state, before = copy.deepcopy(model.state_dict()), picture()
    random_state = torch.get_rng_state()
    try:
        yield
    finally:
        assert picture() == before
        after = model.state_dict()
        assert after.keys() == state.keys()
        assert all(torch.equal(after[name], state[name]) for name in state)
        assert torch.equal(torch.get_rng_state(), random_state)
