"""The last linear layer of a classifier, and the features in front of it."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ttpfl.errors import MethodError


class Head:
    """Finds the linear layer that gives a model's logits, and what goes into it.

    Args:
        model: the classifier.
        name: of the layer; if empty, it is the last `nn.Linear` in the order of the model's modules.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> Head(model).name
    '2'
    """

    def __init__(self, model: nn.Module, name: str = "") -> None:
        layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
        if name and name not in layers:
            known = ", ".join(layers) or "none"
            raise MethodError(f"the model has no linear layer {name!r}; it has: {known}")
        if not layers:
            raise MethodError(
                f"{type(model).__name__} has no linear layer to take features from: "
                "choose a method that needs none"
            )
        self.model, self.name = model, name or list(layers)[-1]
        self.layer = layers[self.name]
        self._seen: Tensor | None = None

    def features_and_logits(
        self, batch: Any, forward: Callable[[Any], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """What goes into the layer, and the logits: by `forward`, if the model is to be called through it."""
        handle = self.layer.register_forward_pre_hook(self._note)
        try:
            logits = (forward or self.model)(batch)
        finally:
            handle.remove()
        features, self._seen = self._seen, None
        if features is None or features.ndim != 2 or logits.shape != (len(features), self.layer.out_features):
            raise MethodError(
                f"the layer {self.name!r} does not give one vector of logits per sample: name the last layer"
            )
        return features, logits

    def _note(self, layer: nn.Module, args: tuple[Any, ...]) -> None:
        self._seen = args[0]
