"""Inputs and outputs of a network, so that a model file can be used without its training data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn

from ttpfl.core.outputs import logits_of
from ttpfl.errors import ModelError
from ttpfl.util.limits import MOST_CLASSES
from ttpfl.util.settings_kit import LIST, NUMBER, Rule, one_of

if TYPE_CHECKING:
    from ttpfl.data.images import DatasetInfo

LARGEST_SIDE = 16384
MOST_DIMENSIONS = 4
LARGEST = 1e9  # mean and standard deviation


def _are_sides(sides: Sequence[Any]) -> bool:
    return all(type(side) is int and 1 <= side <= LARGEST_SIDE for side in sides)


_SIZE = Rule(f"height and width, up to {LARGEST_SIDE}", lambda sides: len(sides) == 2 and _are_sides(sides))
_SHAPE = Rule(
    f"up to {MOST_DIMENSIONS} sides, each up to {LARGEST_SIDE}",
    lambda sides: len(sides) <= MOST_DIMENSIONS and _are_sides(sides),
)
_SCALE = Rule("a number other than 0", lambda value: NUMBER.holds(value) and value != 0)
_MISSING = one_of("error", "mean")
_FEATURES = Rule("a list of names", lambda names: all(isinstance(name, str) for name in names))


def _numbers(count: int, positive: bool = False) -> Rule:
    """A number for each channel.

    >>> _numbers(3, positive=True).words, _numbers(1).words
    ('three positive numbers', '1 number')
    """
    words = f"{'three' if count == 3 else count} {'positive ' * positive}number{'s' * (count != 1)}"
    return Rule(
        words,
        lambda values: (
            len(values) == count
            and all(type(value) in (int, float) and abs(value) < LARGEST for value in values)
            and (not positive or min(values) > 0)
        ),
    )


@dataclass(frozen=True)
class Signature:
    """Input: normalised images of one size, or samples of one shape. Output: one logit per class.

    >>> Signature(("cat", "dog"), (32, 32), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.0))
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: std must be three positive numbers, got (0.5, 0.5, 0.0)
    """

    classes: tuple[str, ...]
    """Names in the order of the logits."""
    image_size: tuple[int, int]
    """Height and width; (0, 0) if the inputs are no images."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Mean and standard deviation of red, green and blue (0 to 1) or of other channels, for normalisation."""
    shape: tuple[int, ...] = ()
    """Shape of a sample that is not an image."""
    scale: float = 1.0
    """Factor from stored values to those that are normalised."""
    missing: str = "error"
    """What NaN means: "error", or "mean" for the mean of its channel."""
    features: tuple[str, ...] = ()
    """Names of the columns of a table that are the inputs, in order."""

    def __post_init__(self) -> None:
        for name in ("classes", "image_size", "mean", "std", "shape", "features"):
            value = getattr(self, name)
            LIST.check(ModelError, **{name: value})
            object.__setattr__(self, name, tuple(value))  # the card of a file has lists
        self._check_classes()
        _SHAPE.check(ModelError, shape=self.shape)
        if not self.shape:
            _SIZE.check(ModelError, image_size=self.image_size)
        _SCALE.check(ModelError, scale=self.scale)
        _MISSING.check(ModelError, missing=self.missing)
        _FEATURES.check(ModelError, features=self.features)
        channels = self.input_shape[0]
        _numbers(channels).check(ModelError, mean=self.mean)
        _numbers(channels, positive=True).check(ModelError, std=self.std)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input of the network."""
        return self.shape or (3, *self.image_size)

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
        required = {field.name: card[field.name] for field in fields(cls) if field.default is MISSING}
        optional = ("shape", "scale", "missing", "features")
        return cls(**required, **{name: card[name] for name in optional if name in card})

    @classmethod
    def of(cls, info: "DatasetInfo") -> Self:
        """The signature of networks for a data set.

        >>> from ttpfl.data import dataset_info
        >>> Signature.of(dataset_info("pacs")).image_size
        (224, 224)
        """
        size = (info.image_size, info.mean, info.std)
        return cls(info.classes, *size, info.shape, info.scale, info.missing, info.features)

    def check_fits(self, model: nn.Module) -> None:
        """Raise a ModelError unless the model accepts such inputs and has one logit per class.

        >>> from ttpfl.models import shallow_cnn
        >>> signature = Signature(("cat", "dog"), (32, 32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        >>> signature.check_fits(shallow_cnn(10).eval())
        Traceback (most recent call last):
            ...
        ttpfl.errors.ModelError: there are 2 classes, but the network returns logits of shape (1, 10)
        """
        try:
            with torch.inference_mode():
                shape = tuple(logits_of(model(torch.zeros(1, *self.input_shape))).shape)
        except (RuntimeError, ValueError) as error:
            kind = "samples" if self.shape else "images"
            size = "x".join(map(str, self.shape or self.image_size))
            raise ModelError(f"the network does not accept {kind} of {size}: {error}") from error
        if shape != (1, len(self.classes)):
            raise ModelError(
                f"there are {len(self.classes)} classes, but the network returns logits of shape {shape}"
            )
