"""The supported versions of Flower."""

from importlib.metadata import PackageNotFoundError, version

from ttpfl.errors import FederationError

FIRST, BEFORE = (1, 41), (1, 43)
"""The tested range: from the first version, up to but excluding the second, which changes the transport."""


def check_flower() -> None:
    """Raise an error if Flower is missing or of an untested version."""
    try:
        check_version(version("flwr"))
    except PackageNotFoundError:
        raise FederationError("Flower is not installed: install ttpfl with the extra `flower`") from None


def check_version(installed: str) -> None:
    """Refuse a version outside the tested range.

    >>> check_version("1.41.0"), check_version("1.42.3")
    (None, None)
    >>> check_version("1.43.0")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: Flower is 1.43.0, but ttpfl needs flwr>=1.41,<1.43: install one of these
    """
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in installed.split(".")[:2])
    if not FIRST <= numbers < BEFORE:
        supported = "flwr>={}.{},<{}.{}".format(*FIRST, *BEFORE)
        raise FederationError(f"Flower is {installed}, but ttpfl needs {supported}: install one of these")
