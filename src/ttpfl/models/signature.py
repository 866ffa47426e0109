"""What a network takes and answers, so that a model file can be used without the data it was trained on."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import torch
from torch import nn

from ttpfl.errors import ModelError
from ttpfl.outputs import logits_of

if TYPE_CHECKING:
    from ttpfl.data.images import Facts, Triple


@dataclass(frozen=True)
class Signature:
    """Pictures of one size with normalised colours go in, one logit per class comes out.

    >>> Signature(("cat", "dog"), (32, 32), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.0))
    Traceback (most recent call last):
        ...
    ttpfl.errors.ModelError: std is (0.5, 0.5, 0.0): it must be three positive numbers
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
            object.__setattr__(self, entry.name, tuple(getattr(self, entry.name)))
        if twice := next((name for name in self.classes if self.classes.count(name) > 1), None):
            raise ModelError(f"the class {twice!r} is there twice: give each a name of its own")
        if not self.classes:
            raise ModelError("there are no classes: name them")
        if len(self.image_size) != 2 or min(self.image_size) < 1:
            raise ModelError(f"image_size is {self.image_size}: it must be height and width")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) != 3 or (name == "std" and min(numbers) <= 0):
                kind = "positive " if name == "std" else ""
                raise ModelError(f"{name} is {numbers}: it must be three {kind}numbers")

    @classmethod
    def of(cls, facts: "Facts") -> Self:
        """For networks that are trained on a data set.

        >>> from ttpfl.data import facts
        >>> Signature.of(facts("pacs")).image_size
        (224, 224)
        """
        return cls(facts.classes, facts.image_size, facts.mean, facts.std)

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
