"""The registry of corruptions, with the parameters of their five severities."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ttpfl.data.corruption_names import SOURCE_CORRUPTIONS, TARGET_CORRUPTIONS
from ttpfl.data.corruptions.batch import Batch, Images
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import find

Parameters = tuple[Any, ...]
Function = TypeVar("Function", bound=Callable[..., Images])


class Corruption(NamedTuple):
    """A function of a batch and parameters, and the parameters for severities 1 to 5."""

    function: Callable[..., Images]
    severities: tuple[Parameters, ...]

    def __call__(self, batch: Batch, severity: int) -> Images:
        """The corrupted images, not yet clipped to 0 to 1."""
        return self.function(batch, *self.severities[severity - 1])


_CORRUPTIONS: dict[str, Corruption] = {}


def corruption(
    one: Parameters, two: Parameters, three: Parameters, four: Parameters, five: Parameters
) -> Callable[[Function], Function]:
    """Register the decorated function under its name, with its parameters at severities 1 to 5.

    >>> import numpy as np
    >>> from ttpfl.data.corruptions import corrupt
    >>> @corruption((0.1,), (0.2,), (0.3,), (0.4,), (0.5,))
    ... def darken(batch, part):
    ...     return batch.images * np.float32(1 - part)
    >>> corrupt(np.full((1, 32, 32, 3), 100, np.uint8), "darken", 5, seeds=[0]).max()
    np.uint8(50)
    >>> del _CORRUPTIONS["darken"]
    """

    def register(function: Function) -> Function:
        _CORRUPTIONS[function.__name__] = Corruption(function, (one, two, three, four, five))
        return function

    return register


def names() -> tuple[str, ...]:
    """All corruptions: those of source clients, those of target clients, and the user's own.

    >>> names()[0], names()[-1], len(names())
    ('gaussian_noise', 'spatter', 19)
    """
    return tuple(dict.fromkeys((*SOURCE_CORRUPTIONS, *TARGET_CORRUPTIONS, *_CORRUPTIONS)))


def get(name: str) -> Corruption:
    """A corruption by name, or an error that lists all names.

    >>> get("gaussian_noise").severities
    ((0.04,), (0.06,), (0.08,), (0.09,), (0.1,))
    """
    return find("corruption", name, {name: _CORRUPTIONS[name] for name in names()}, DataError)
