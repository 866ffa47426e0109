"""Which versions of Flower this works with."""

from importlib.metadata import PackageNotFoundError, version

from ttpfl.errors import FederationError

FIRST, BEFORE = (1, 41), (1, 43)
"""The versions that were tried: from the first one on, and before the other, which changes the transport."""


def check_flower() -> None:
    """A clear word where Flower is missing, or is one that nobody has tried this with."""
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise FederationError("Flower is not installed: install ttpfl with the extra `flower`") from None
    check_version(found)


def check_version(found: str) -> None:
    """Refuse a version outside the range.

    >>> check_version("1.41.0"), check_version("1.42.3")
    (None, None)
    >>> check_version("1.43.0")
    Traceback (most recent call last):
        ...
    ttpfl.errors.FederationError: Flower is 1.43.0, but ttpfl needs flwr>=1.41,<1.43: install one of these
    """
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in found.split(".")[:2])
    if not FIRST <= numbers < BEFORE:
        wanted = "flwr>={}.{},<{}.{}".format(*FIRST, *BEFORE)
        raise FederationError(f"Flower is {found}, but ttpfl needs {wanted}: install one of these")
