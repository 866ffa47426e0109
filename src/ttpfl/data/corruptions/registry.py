"""Which corruptions there are, and the parameters of their five severities."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ttpfl.data.corruption_names import SOURCE_CORRUPTIONS, TARGET_CORRUPTIONS
from ttpfl.data.corruptions.batch import Batch, Images
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import find

Function = TypeVar("Function", bound=Callable[..., Images])


class Corruption(NamedTuple):
    """A function of a batch and some parameters, and these parameters for severity 1 to 5."""

    function: Callable[..., Images]
    severities: tuple[tuple[Any, ...], ...]

    def __call__(self, batch: Batch, severity: int) -> Images:
        """The corrupted images; values outside 0 to 1 are still to be clipped."""
        return self.function(batch, *self.severities[severity - 1])


_CORRUPTIONS: dict[str, Corruption] = {}


def corruption(
    one: tuple[Any, ...],
    two: tuple[Any, ...],
    three: tuple[Any, ...],
    four: tuple[Any, ...],
    five: tuple[Any, ...],
) -> Callable[[Function], Function]:
    """Register the decorated function under its name, with its parameters at severity 1 to 5.

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
    """All corruptions: those of source clients, those of target clients, and any added since.

    >>> names()[0], names()[-1], len(names())
    ('gaussian_noise', 'spatter', 19)
    """
    usual = SOURCE_CORRUPTIONS + TARGET_CORRUPTIONS
    return usual + tuple(name for name in _CORRUPTIONS if name not in usual)


def get(name: str) -> Corruption:
    """The corruption of this name, or an error that lists the known ones.

    >>> get("gaussian_noise").severities
    ((0.04,), (0.06,), (0.08,), (0.09,), (0.1,))
    """
    return find("corruption", name, {name: _CORRUPTIONS[name] for name in names()}, DataError)
