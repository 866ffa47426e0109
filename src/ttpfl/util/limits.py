"""Limits on sizes and waiting times. An environment variable can change each of them."""

import os
from typing import NamedTuple

from ttpfl.errors import LimitError
from ttpfl.util.settings_kit import must_be


class Limit(NamedTuple):
    """A limit with its environment variable and default.

    >>> Limit("TTPFL_MAX_EXAMPLE_BYTES", 10).check(11, "example.npz")
    Traceback (most recent call last):
        ...
    ttpfl.errors.LimitError: example.npz takes 11 bytes, more than the limit of 10: ...
    """

    variable: str
    default: int

    @property
    def value(self) -> int:
        """Value of the environment variable, or the default."""
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default
        if not text.isdecimal() or len(text) > 18 or not int(text):
            raise LimitError(must_be(self.variable, "a positive integer", text))
        return int(text)

    def check(self, size: int, what: object) -> None:
        """Raise a LimitError if `size` is above the limit."""
        if size > self.value:
            raise LimitError(
                f"{what} takes {size} bytes, more than the limit of {self.value}: "
                f"set {self.variable} to allow more"
            )


MODEL = Limit("TTPFL_MAX_MODEL_BYTES", 4 * 2**30)  # weights in a model file, unpacked
ARRAYS = Limit("TTPFL_MAX_ARRAY_BYTES", 2 * 2**30)  # all arrays in an npz file, unpacked
# One image, decoded to four bytes per pixel; images decoded at the same time may take twice as much.
PICTURE = Limit("TTPFL_MAX_PICTURE_BYTES", 128 * 2**20)
TEXT = Limit("TTPFL_MAX_TEXT_BYTES", 256 * 2**20)  # a JSON or TOML file
# One request of a site to the server. Arrays can be larger: Flower sends them in pieces of 5 MiB.
REQUEST = Limit("TTPFL_MAX_REQUEST_BYTES", 16 * 2**20)
STOPPED = Limit("TTPFL_STOPPED_WORKER_SECONDS", 60)  # until a stopped (SIGSTOP) worker process is replaced

MOST_CLASSES = 1_000_000
