"""Errors and warnings. Every message names the value, the place and the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager


class TtpflError(ValueError):
    """Base class of all errors that this library raises."""


class BatchError(TtpflError):
    """A batch, or the model's output for it, is invalid."""


class DataError(TtpflError):
    """Data are unknown, damaged, or unsuitable for a request."""


class DataMissingError(DataError):
    """Files of a data set were not found."""


class ModelError(TtpflError):
    """A model cannot be copied, or has nothing to adapt."""


class RatesError(TtpflError):
    """Rates do not fit the model, or are not finite."""


class RatesFileError(RatesError):
    """A rates file is damaged, is another kind of file, or has an unknown version."""


class FederationError(TtpflError):
    """A federated run cannot continue."""


class LimitError(TtpflError):
    """A file, an image or a message exceeds a limit."""


class MethodError(TtpflError):
    """A test-time method is unknown, has invalid settings, or does not fit the model."""


class RecipeError(TtpflError):
    """A recipe, or its results, are invalid."""


class TheoryError(TtpflError):
    """A bound does not hold for the given values."""


class ReportError(TtpflError):
    """A results file is invalid."""


class TtpflWarning(UserWarning):
    """Base class of all warnings about results that should not be used as they are."""


class RatesWarning(TtpflWarning):
    """Learned rates are worse than no adaptation on the clients they were learned from."""


class ModelWarning(TtpflWarning):
    """A trained model is no better than chance."""


class DivergenceWarning(ModelWarning):
    """Training diverged: the loss is not finite, or far above the loss of guessing."""


class RefusedError(FederationError):
    """A message requests or contains something that its receiver does not accept.

    The text repeats only content of the message, so that it can be sent back.
    """


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a note on where they happened to errors of this library."""
    try:
        yield
    except TtpflError as error:
        error.add_note(note)
        raise
