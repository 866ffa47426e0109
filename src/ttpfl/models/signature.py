"""What a network takes and answers, so that a model file can be used without the data it was trained on."""

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
    lambda values: len(values) == 3 and all(type(one) in (int, float) and abs(one) < 1e6 for one in values),
)
_STD = Rule("three positive numbers", lambda values: _MEAN.holds(values) and min(values) > 0)


@dataclass(frozen=True)
class Signature:
    """Pictures of one size with normalised colours go in, one logit per class comes out.

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
    """Of red, green and blue between 0 and 1: what is subtracted, and what it is divided by then."""

    def __post_init__(self) -> None:
        for entry in fields(self):  # a file's card has lists
            value = getattr(self, entry.name)
            LIST.check(ModelError, **{entry.name: value})
            object.__setattr__(self, entry.name, tuple(value))
        self._check_classes()
        _SIZE.check(ModelError, image_size=self.image_size)
        _MEAN.check(ModelError, mean=self.mean)
        _STD.check(ModelError, std=self.std)

    def _check_classes(self) -> None:
        if not self.classes:
            raise ModelError("there are no classes: name them")
        if len(self.classes) > MOST_CLASSES:
            raise ModelError(f"there are {len(self.classes)} classes: at most {MOST_CLASSES} are allowed")
        if odd := [name for name in self.classes if not isinstance(name, str)]:
            raise ModelError(f"the class {odd[0]!r:.60} is no text: give each class a name")
        name, times = Counter(self.classes).most_common(1)[0]
        if times > 1:
            raise ModelError(f"the class {name!r} is there twice: give each a name of its own")

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        """From a file's card; keys that are not known here are left alone.

        >>> Signature.read({"classes": ["cat"], "image_size": [8, 8], "mean": [0, 0, 0], "std": [1, 1, 1],
        ...                 "colour_space": "sRGB"}).classes
        ('cat',)
        """
        return cls(**{entry.name: said[entry.name] for entry in fields(cls)})

    @classmethod
    def of(cls, info: "DatasetInfo") -> Self:
        """For networks that are trained on a data set.

        >>> from ttpfl.data import dataset_info
        >>> Signature.of(dataset_info("pacs")).image_size
        (224, 224)
        """
        return cls(info.classes, info.image_size, info.mean, info.std)

    def check_fits(self, model: nn.Module) -> None:
        """Raise a ModelError unless the model takes such pictures and has as many logits.

        >>> from ttpfl.models import shallow_cnn
        >>> signature = Signature(("cat", "dog"), (32, 32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        >>> signature.check_fits(shallow_cnn(10).eval())
        Traceback (most recent call last):
            ...
        ttpfl.errors.ModelError: 2 classes are named, but for one picture the network answers (1, 10)
        """
        height, width = self.image_size
        try:
            with torch.inference_mode():
                answer = logits_of(model(torch.zeros(1, 3, height, width)))
        except RuntimeError as error:
            raise ModelError(f"the network does not take pictures of {height}x{width}: {error}") from error
        if tuple(answer.shape) != (1, len(self.classes)):
            raise ModelError(
                f"{len(self.classes)} classes are named, "
                f"but for one picture the network answers {tuple(answer.shape)}"
            )
