"""Every data set by its name: one decorated function each."""

import inspect
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, overload

from ttpfl.data.augmentation import AUGMENTATIONS
from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.download import fetch
from ttpfl.data.images import DatasetInfo, Images
from ttpfl.data.own_clients import own_config
from ttpfl.data.population_config import config_of
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.settings_kit import Rule, check_known, find

log = logging.getLogger("ttpfl")

ENVIRONMENT = "TTPFL_DATA"
OWN = ("arrays", "folder")  # formats of the user's data, which is never where data sets are

Loader = Callable[..., Images | ClientArrays]
L = TypeVar("L", bound=Loader)


class _Loader(NamedTuple):
    info: DatasetInfo
    loader: Loader


_entries: dict[str, _Loader] = {}


def dataset(info: DatasetInfo) -> Callable[[L], L]:
    """Register a loader `(directory, **options)` under the name in `info`.

    The loader raises a DataMissingError for files that are not there; `load` adds what to do about it. If an
    option's type is `Annotated[..., check]`, and not the text of that, its value is checked before anything
    is loaded: `check` is a rule of `ttpfl.util.settings_kit`, or is called as `check(name, value)`.
    """

    def register(loader: L) -> L:
        if info.name in _entries:
            raise DataError(f"there is already a data set {info.name!r}: choose another name")
        _entries[info.name] = _Loader(info, loader)
        return loader

    return register


def names() -> tuple[str, ...]:
    """The names that `load` knows.

    >>> "digits" in names()
    True
    """
    return tuple(sorted(_entries))


def dataset_info(name: str) -> DatasetInfo:
    """What is known about a data set without loading it.

    >>> dataset_info("cifar10").classes[:3]
    ('airplane', 'automobile', 'bird')
    """
    return _entry(name).info


def options(name: str) -> dict[str, Any]:
    """What `load` takes for this data set beside the directory, with the default values, or None without one.

    >>> options("digits")
    {'seed': 0, 'augmentation': ''}
    """
    _, *own = inspect.signature(_entry(name).loader).parameters.values()  # the first is the directory
    return {
        **{one.name: None if one.default is one.empty else one.default for one in own},
        "augmentation": "",
    }


def client_choices(name: str) -> dict[str, Any]:
    """What can be chosen about its clients, with the default values; clients of one's own are what they are.

    >>> client_choices("cifar100")["ratio"], client_choices("arrays")
    (51.0, {'validation': 0.2, 'seed': 0})
    """
    known = dataset_info(name)
    return asdict(config_of(known.defaults, {})) if known.classes else own_config({})


def check_options(name: str, given: Mapping[str, Any]) -> None:
    """Refuse options that a data set does not have, and values that it cannot take. Nothing is loaded.

    >>> check_options("digits", {"seed": "abc"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: seed must be a non-negative integer, got 'abc'
    """
    known, own = options(name), inspect.signature(_entry(name).loader).parameters
    for option, value in given.items():
        check_known("option", option, known, DataError, f"of {name}")
        if option in own:
            for check in getattr(own[option].annotation, "__metadata__", ()):
                if isinstance(check, Rule):
                    check.check(DataError, **{option: value})
                elif callable(check):
                    check(option, value)
        elif value != "":
            check_known("augmentation", value, AUGMENTATIONS, DataError)


def is_there(name: str, data_dir: str | PathLike[str] | None = None) -> bool:
    """Whether files of the data set lie in the data directory, or none are needed. Nothing is read.

    >>> is_there("digits"), is_there("cifar10", "no such directory")
    (True, False)
    """
    places, directory = dataset_info(name).places, data_directory(data_dir)
    return not places or any(True for place in places for _ in directory.glob(place))


@overload
def load(
    name: Literal["arrays", "folder"],
    data_dir: str | PathLike[str] | None = ...,
    download: bool = ...,
    **options: Any,
) -> ClientArrays: ...
@overload
def load(
    name: str, data_dir: str | PathLike[str] | None = ..., download: bool = ..., **options: Any
) -> Images: ...
def load(
    name: str,
    data_dir: str | PathLike[str] | None = None,
    download: bool = False,
    *,
    augmentation: str = "",
    **options: Any,
) -> Images | ClientArrays:
    """A data set by its name, from `data_dir`, else the directory in TTPFL_DATA, else the user's cache.

    Nothing is downloaded unless `download` is true. `options` are the data set's own, for example
    `seed` for digits or `image_size` for pacs; `augmentation` (domainbed or flips), which all have, is done
    at random to the pictures that source clients train with. The user's own data (`folder`, `arrays`) comes
    as `ClientArrays`, everything else as `Images`.

    >>> load("digits")
    <digits: 9297 images of 28x28, 10 classes, 4 domains>
    >>> load("cifar11")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown data set 'cifar11'; did you mean 'cifar10'? Available: arrays, ...
    """
    entry, directory = _entry(name), data_directory(data_dir)
    check_options(name, {**options, "augmentation": augmentation})
    try:
        found = entry.loader(directory, **options)
    except DataMissingError as missing:
        if not download:
            if name in OWN and not os.environ.get(ENVIRONMENT) and directory == data_directory():
                raise DataMissingError(
                    f"{name} is your own data: pass data_dir=, a directory with {entry.info.instructions}"
                ) from None
            what = missing if directory.exists() else f"the data directory {directory} does not exist"
            raise DataMissingError(f"{what}. {_advice(entry.info, directory)}") from None
        _download(entry.info, directory)
        found = entry.loader(directory, **options)
    full = entry.info.samples
    if isinstance(found, Images) and full and len(found) != full:
        log.warning("%s in %s has %d images; the complete set has %d", name, directory, len(found), full)
    if augmentation:
        found = replace(found, info=replace(found.info, augmentation=augmentation))
    return found


def data_directory(data_dir: str | PathLike[str] | None = None) -> Path:
    """Where data is: the argument, else TTPFL_DATA, else `ttpfl` in the user's cache.

    >>> data_directory("mine").as_posix()
    'mine'
    """
    if data_dir is not None:
        return Path(data_dir).expanduser()
    if own := os.environ.get(ENVIRONMENT):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ttpfl"


def _entry(name: str) -> _Loader:
    return find("data set", name, {known: _entries[known] for known in names()}, DataError)


def _download(info: DatasetInfo, directory: Path) -> None:
    if not info.files:
        raise DataMissingError(f"{info.name} cannot be downloaded. {_advice(info, directory)}")
    try:
        for file in info.files:
            fetch(file, directory)
    except DataError as error:
        raise DataError(f"{error}. Without the network: {_advice(info, directory)}") from error


def _advice(info: DatasetInfo, directory: Path) -> str:
    advice = f"Put {info.instructions} into {directory} (data_dir= or {ENVIRONMENT} names another directory)"
    if info.files:
        advice += f", or let load({info.name!r}, download=True) fetch it"
        advice += f"; `ttpfl data info {info.name}` shows the addresses"
    elif info.homepage:
        advice += f". See {info.homepage}"
    return advice
