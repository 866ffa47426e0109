"""Optional packages, which only data sets need."""

from importlib import import_module, metadata
from typing import Any

from ttpfl.errors import DataError

REMEDY = "install ttpfl with the extra `data`"


def extra(module: str) -> Any:
    """Import a module, or raise an error that says how to install it.

    >>> extra("no_package.part")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: no_package is not installed: install ttpfl with the extra `data`
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        raise DataError(f"{package} is not installed: {REMEDY}") from error


def version_of(distribution: str) -> str:
    """The installed version, without importing the package."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError as error:
        raise DataError(f"{distribution} is not installed: {REMEDY}") from error
