"""What can go wrong, by name. Every message says the value, the place and the remedy."""

from collections.abc import Iterator
from contextlib import contextmanager


class TtpflError(ValueError):
    """Base of all errors that this library raises on purpose."""


class BatchError(TtpflError):
    """A batch, or what the model made of it, cannot be used."""


class DataError(TtpflError):
    """Data are unknown or damaged, or what was asked of them cannot be done."""


class DataMissingError(DataError):
    """Files of a data set are not where they were looked for."""


class ModelError(TtpflError):
    """A model cannot be copied, or has nothing to adapt."""


class RatesError(TtpflError):
    """Rates do not fit the model, or are not finite."""


class RatesFileError(RatesError):
    """A rates file is damaged, foreign or of an unknown version."""


class FederationError(TtpflError):
    """A federated run cannot go on."""


class LimitError(TtpflError):
    """A file, a picture or a message is larger than what is allowed."""


class MethodError(TtpflError):
    """A test-time method is unknown, wrongly configured, or does not fit the model."""


class RecipeError(TtpflError):
    """A recipe, or the results of one, cannot be understood."""


class TheoryError(TtpflError):
    """A bound is asked for values that it does not hold for."""


class ReportError(TtpflError):
    """A file of results cannot be made into a report."""


class TtpflWarning(UserWarning):
    """Base of all warnings about results: the code works, but what came of it should not be used as it is."""


class RatesWarning(TtpflWarning):
    """Learned rates are worse than no adaptation on the clients that they were learned from."""


class ModelWarning(TtpflWarning):
    """A trained model is no better than chance."""


class DivergenceWarning(ModelWarning):
    """Training diverged: the loss is not finite, or far above that of guessing."""


class RefusedError(FederationError):
    """A message asks for, or offers, something that its reader does not accept.

    Its text says nothing but what the message itself said: it may be sent back.
    """


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Errors of this library get a note that says where they happened."""
    try:
        yield
    except TtpflError as error:
        error.add_note(note)
        raise
