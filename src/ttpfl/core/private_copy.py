"""Copies of models that share nothing with the original."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from ttpfl.core.network import uncompiled
from ttpfl.errors import ModelError


def private_copy(model: nn.Module) -> nn.Module:
    """Copy a model deeply, without gradients and without `torch.compile`.

    Compiled code assumes constant weights: it would be compiled again for the moved weights of every pass.
    """
    model = uncompiled(model)
    memo: dict[int, Any] = {}
    with torch.inference_mode(False), torch.no_grad():
        for parameter in model.parameters():
            copied = nn.Parameter(parameter.clone(), requires_grad=False)
            copied.__dict__.update(parameter.__dict__)
            memo[id(parameter)] = copied
        memo.update((id(buffer), buffer.clone()) for buffer in model.buffers())
        for layer in model.modules():
            # Most of a layer is empty dictionaries of hooks, which deepcopy copies slowly.
            empty = (v for v in vars(layer).values() if type(v) is OrderedDict and not v)
            memo.update((id(hooks), OrderedDict()) for hooks in empty)
            memo[id(getattr(layer, "_compiled_call_impl", None))] = None  # of layer.compile()
        try:
            return copy.deepcopy(model, memo)
        except Exception as error:
            raise ModelError(
                f"the model ({type(model).__name__}) cannot be copied: {error}. Pass the plain nn.Module, "
                "not a distributed wrapper, and keep computed tensors, locks and open files out of attributes"
            ) from error
