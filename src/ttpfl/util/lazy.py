"""Packages that import what they offer when it is asked for: the command line does not wait for torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose public names are at home in these modules of it.

    A name that is a module itself has its own name as its home.

    >>> attributes("json", {"JSONDecoder": "decoder"})("JSONDecoder").__name__
    'JSONDecoder'
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{homes[name]}")
        return module if homes[name] == name else getattr(module, name)

    return get
