"""Limits on what is read and waited for. Each can be set by an environment variable."""

import os
from typing import NamedTuple

from ttpfl.errors import LimitError
from ttpfl.util.settings_kit import must_be


class Limit(NamedTuple):
    """A limit with its default.

    >>> Limit("TTPFL_MAX_EXAMPLE_BYTES", 10).check(11, "example.npz")
    Traceback (most recent call last):
        ...
    ttpfl.errors.LimitError: example.npz takes 11 bytes, more than the limit of 10: ...
    """

    variable: str
    default: int

    @property
    def value(self) -> int:
        """What the environment says, or the default."""
        said = os.environ.get(self.variable, "")
        if not said:
            return self.default
        if not said.isdecimal() or len(said) > 18 or not int(said):
            raise LimitError(must_be(self.variable, "a positive integer", said))
        return int(said)

    def check(self, size: int, what: object) -> None:
        """Raise a LimitError if `size` is above the limit."""
        if size > self.value:
            raise LimitError(
                f"{what} takes {size} bytes, more than the limit of {self.value}: "
                f"set {self.variable} to allow more"
            )


MODEL = Limit("TTPFL_MAX_MODEL_BYTES", 4 * 2**30)
"""Of the weights in a model file, unpacked."""
ARRAYS = Limit("TTPFL_MAX_ARRAY_BYTES", 2 * 2**30)
"""Of all arrays in one npz file, unpacked."""
PICTURE = Limit("TTPFL_MAX_PICTURE_BYTES", 128 * 2**20)
"""Of one picture, decoded to four bytes per pixel; twice as much for all that are decoded at a time."""
TEXT = Limit("TTPFL_MAX_TEXT_BYTES", 256 * 2**20)
"""Of one JSON or TOML file."""
REQUEST = Limit("TTPFL_MAX_REQUEST_BYTES", 16 * 2**20)
"""Of one request of a site to the server. Arrays of any size fit: Flower sends them in pieces of 5 MiB."""
STOPPED = Limit("TTPFL_STOPPED_WORKER_SECONDS", 60)
"""Until a worker process that somebody stopped (SIGSTOP) is replaced."""

MOST_CLASSES = 1_000_000
