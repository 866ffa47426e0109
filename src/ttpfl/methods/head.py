"""The last linear layer of a classifier and its input features."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ttpfl.errors import MethodError


class Head:
    """The linear layer that computes a model's logits.

    Args:
        model: The classifier.
        name: The layer's name; if empty, the last `nn.Linear` among the model's modules.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> Head(model).name
    '2'
    """

    def __init__(self, model: nn.Module, name: str = "") -> None:
        layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
        if name and name not in layers:
            raise MethodError(
                f"the model has no linear layer {name!r}; it has: {', '.join(layers) or 'none'}"
            )
        if not layers:
            raise MethodError(
                f"{type(model).__name__} has no linear layer to take features from: choose another method"
            )
        self.model, self.name = model, name or list(layers)[-1]
        self.layer = layers[self.name]

    def features_and_logits(
        self, batch: Any, forward: Callable[[Any], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The layer's input and the logits; `forward` replaces the call of the model."""
        inputs: list[Tensor] = []
        handle = self.layer.register_forward_pre_hook(lambda layer, args: inputs.append(args[0]))
        try:
            logits = (forward or self.model)(batch)
        finally:
            handle.remove()
        features = inputs[-1] if inputs else None
        if features is None or features.ndim != 2 or logits.shape != (len(features), self.layer.out_features):
            raise MethodError(
                f"the layer {self.name!r} does not give one vector of logits per sample: name the last layer"
            )
        return features, logits
