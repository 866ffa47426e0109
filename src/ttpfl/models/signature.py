"""Inputs and outputs of a network, so that a model file can be used without its training data."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from ttpfl.core.outputs import logits_of
from ttpfl.errors import ModelError
from ttpfl.util.limits import MOST_CLASSES
from ttpfl.util.settings_kit import LIST, Rule

if TYPE_CHECKING:
    from ttpfl.data.images import DatasetInfo, Triple

LARGEST_SIDE = 16384
_SIZE = Rule(
    f"height and width, up to {LARGEST_SIDE}",
    lambda sides: len(sides) == 2 and all(type(side) is int and 1 <= side <= LARGEST_SIDE for side in sides),
)
_MEAN = Rule(
    "three numbers",
    lambda values: (
        len(values) == 3 and all(type(value) in (int, float) and abs(value) < 1e6 for value in values)
    ),
)
_STD = Rule("three positive numbers", lambda values: _MEAN.holds(values) and min(values) > 0)


@dataclass(frozen=True)
class Signature:
    """Input: normalised images of one size. Output: one logit per class.

    >>> Signature(("cat", "dog"), (32, 32), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.0))
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: std must be three positive numbers, got (0.5, 0.5, 0.0)
    """

    classes: tuple[str, ...]
    """Names in the order of the logits."""
    image_size: tuple[int, int]
    """Height and width."""
    mean: "Triple"
    std: "Triple"
    """Mean and standard deviation of red, green and blue (0 to 1), for normalisation."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            LIST.check(ModelError, **{field.name: value})
            object.__setattr__(self, field.name, tuple(value))  # the card of a file has lists
        self._check_classes()
        _SIZE.check(ModelError, image_size=self.image_size)
        _MEAN.check(ModelError, mean=self.mean)
        _STD.check(ModelError, std=self.std)

    def _check_classes(self) -> None:
        if not self.classes:
            raise ModelError("classes is empty: name them")
        if len(self.classes) > MOST_CLASSES:
            raise ModelError(f"there are {len(self.classes)} classes: at most {MOST_CLASSES} are allowed")
        if unnamed := [name for name in self.classes if not isinstance(name, str)]:
            raise ModelError(f"the class {unnamed[0]!r:.60} is not a string: name each class")
        name, count = Counter(self.classes).most_common(1)[0]
        if count > 1:
            raise ModelError(f"the class {name!r} occurs twice: give each class its own name")

    @classmethod
    def read(cls, card: Mapping[str, Any]) -> Self:
        """Read from a file's card; unknown keys are ignored.

        >>> Signature.read({"classes": ["cat"], "image_size": [8, 8], "mean": [0, 0, 0], "std": [1, 1, 1],
        ...                 "colour_space": "sRGB"}).classes
        ('cat',)
        """
        return cls(**{field.name: card[field.name] for field in fields(cls)})

    @classmethod
    def of(cls, info: "DatasetInfo") -> Self:
        """The signature of networks for a data set.

        >>> from ttpfl.data import dataset_info
        >>> Signature.of(dataset_info("pacs")).image_size
        (224, 224)
        """
        return cls(info.classes, info.image_size, info.mean, info.std)

    def check_fits(self, model: nn.Module) -> None:
        """Raise a ModelError unless the model accepts such images and has one logit per class.

        >>> from ttpfl.models import shallow_cnn
        >>> signature = Signature(("cat", "dog"), (32, 32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        >>> signature.check_fits(shallow_cnn(10).eval())
        Traceback (most recent call last):
            ...
        ttpfl.errors.ModelError: there are 2 classes, but the network returns logits of shape (1, 10)
        """
        height, width = self.image_size
        try:
            with torch.inference_mode():
                shape = tuple(logits_of(model(torch.zeros(1, 3, height, width))).shape)
        except RuntimeError as error:
            raise ModelError(f"the network does not accept images of {height}x{width}: {error}") from error
        if shape != (1, len(self.classes)):
            raise ModelError(
                f"there are {len(self.classes)} classes, but the network returns logits of shape {shape}"
            )
