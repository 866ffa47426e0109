"""The registry of data sets: one decorated function each."""

import inspect
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

from ttpfl._moved import renamed
from ttpfl.data.augmentation import AUGMENTATIONS
from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.download import fetch
from ttpfl.data.images import DatasetInfo, Images
from ttpfl.data.natural_clients import NaturalClients
from ttpfl.data.own_clients import own_config
from ttpfl.data.population_config import config_of
from ttpfl.data.samples import Samples
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.settings_kit import Rule, check_known, find

log = logging.getLogger("ttpfl")

ENVIRONMENT = "TTPFL_DATA"
OWN = ("arrays", "folder", "table")  # formats of the user's data, which is not in the default directory

Directory: TypeAlias = str | PathLike[str] | None
Loaded: TypeAlias = Images | ClientArrays | NaturalClients
Loader = Callable[..., Loaded]
L = TypeVar("L", bound=Loader)


class _Entry(NamedTuple):
    info: DatasetInfo
    loader: Loader


_entries: dict[str, _Entry] = {}


def dataset(info: DatasetInfo) -> Callable[[L], L]:
    """Register a loader `(directory, **options)` under the name in `info`.

    The loader raises a DataMissingError if files are missing; `load` adds the remedy. Options whose type is
    `Annotated[..., check]` (not as a string) are checked before anything is loaded: `check` is a rule of
    `ttpfl.util.settings_kit`, or is called as `check(name, value)`.
    """

    def register(loader: L) -> L:
        if info.name in _entries:
            raise DataError(f"there is already a data set {info.name!r}: choose another name")
        _entries[info.name] = _Entry(info, loader)
        return loader

    return register


def names() -> tuple[str, ...]:
    """The names of all data sets.

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
    """The options of a data set with their defaults, or None for those without.

    >>> options("digits")
    {'seed': 0, 'augmentation': ''}
    """
    _, *parameters = _parameters(name).values()  # the first is the directory
    defaults = {one.name: None if one.default is one.empty else one.default for one in parameters}
    return {**defaults, "augmentation": ""}


def client_choices(name: str) -> dict[str, Any]:
    """The population options of a data set with their defaults; the user's own clients have few.

    >>> client_choices("cifar100")["ratio"], client_choices("folder")
    (51.0, {'validation': 0.2, 'seed': 0})
    """
    return check_choices(name, {})


def check_choices(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """All population options of a data set with these values; a DataError for wrong ones.

    >>> check_choices("arrays", {"fold": 7})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: fold must be an integer from 0 to 4, got 7
    """
    info = dataset_info(name)
    if info.natural or not info.classes:
        return own_config({**info.defaults, **values}, info.natural)
    return asdict(config_of(info.defaults, values))


def check_options(name: str, values: Mapping[str, Any]) -> None:
    """Raise a DataError for unknown options and wrong values, without loading anything.

    >>> check_options("digits", {"seed": "abc"})
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: seed must be a non-negative integer, got 'abc'
    """
    known_options, parameters = options(name), _parameters(name)
    for option, value in values.items():
        check_known("option", option, known_options, DataError, f"of {name}")
        if option in parameters:
            for check in getattr(parameters[option].annotation, "__metadata__", ()):
                if isinstance(check, Rule):
                    check.check(DataError, **{option: value})
                elif callable(check):
                    check(option, value)
        elif value != "":
            check_known("augmentation", value, AUGMENTATIONS, DataError)


def is_there(name: str, data_dir: Directory = None) -> bool:
    """Whether the data directory has files of the data set, or it needs none. Nothing is read.

    >>> is_there("digits"), is_there("cifar10", "no such directory")
    (True, False)
    """
    places, directory = dataset_info(name).places, data_directory(data_dir)
    return not places or any(True for place in places for _ in directory.glob(place))


@overload
def load(
    name: Literal["folder"], data_dir: Directory = ..., download: bool = ..., **options: Any
) -> ClientArrays: ...
@overload
def load(
    name: Literal["arrays"], data_dir: Directory = ..., download: bool = ..., **options: Any
) -> ClientArrays | NaturalClients: ...
@overload
def load(name: str, data_dir: Directory = ..., download: bool = ..., **options: Any) -> Images: ...
def load(
    name: str, data_dir: Directory = None, download: bool = False, *, augmentation: str = "", **options: Any
) -> Loaded:
    """Load a data set by name.

    Images that are divided into clients later become `Images`; clients that exist by themselves, such as
    persons, become `NaturalClients`; the user's own source and target clients become `ClientArrays`.

    Args:
        name: One of `names()`.
        data_dir: Directory of the data; by default the one in TTPFL_DATA, or else the user's cache.
        download: Download a missing data set. Otherwise the network is not used.
        augmentation: Random augmentation of source clients' training images: domainbed or flips.
        options: Options of the data set, such as `seed` for digits or `image_size` for pacs.

    >>> load("digits")
    <digits: 9297 images of 28x28, 10 classes, 4 domains>
    >>> load("cifar11")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: unknown data set 'cifar11'; did you mean 'cifar10'? Available: arrays, ...
    """
    (info, loader), directory = _entry(name), data_directory(data_dir)
    check_options(name, {**options, "augmentation": augmentation})
    try:
        data = loader(directory, **options)
    except DataMissingError as missing:
        if not download:
            raise _missing(info, directory, missing) from None
        _download(info, directory)
        data = loader(directory, **options)
    if isinstance(data, Images) and info.samples and len(data) != info.samples:
        log.warning(
            "%s in %s has %d images; the complete set has %d", name, directory, len(data), info.samples
        )
    if augmentation and data.info.shape:
        raise DataError(f"augmentation is {augmentation!r}, but the samples are no images: leave it out")
    return replace(data, info=replace(data.info, augmentation=augmentation)) if augmentation else data


def first_samples(data: Loaded) -> Samples:
    """The samples of a data set, or of its first client.

    >>> first_samples(load("digits")).shape
    (9297, 28, 28, 3)
    """
    if isinstance(data, Images):
        return data.x
    return next(iter((data.source if isinstance(data, ClientArrays) else data.clients).values())).x


def data_directory(data_dir: Directory = None) -> Path:
    """The directory of data: the argument, else TTPFL_DATA, else `ttpfl` in the user's cache.

    >>> data_directory("mine").as_posix()
    'mine'
    """
    if data_dir is None and not (data_dir := os.environ.get(ENVIRONMENT)):
        data_dir = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "ttpfl"
    return Path(data_dir).expanduser()


def _entry(name: str) -> _Entry:
    return find("data set", name, {key: _entries[key] for key in names()}, DataError)


def _parameters(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(_entry(name).loader).parameters


def _missing(info: DatasetInfo, directory: Path, missing: DataMissingError) -> DataMissingError:
    if info.name in OWN and not os.environ.get(ENVIRONMENT) and directory == data_directory():
        return DataMissingError(
            f"{info.name} is your own data: pass data_dir=, a directory with {info.instructions}"
        )
    problem = missing if directory.exists() else f"the data directory {directory} does not exist"
    return DataMissingError(f"{problem}. {_advice(info, directory)}")


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
        advice += f", or let load({info.name!r}, download=True) download it"
        advice += f"; `ttpfl data info {info.name}` shows the addresses"
    elif info.homepage:
        advice += f". See {info.homepage}"
    return advice


__getattr__ = renamed(__name__)
