"""From data to a population: divide the images, verify the result, and cache corrupted images."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl._version import __version__
from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.clients import Clients, Population, SourceClient, TargetClient, TargetLabels, source_client
from ttpfl.data.extras import version_of
from ttpfl.data.images import Images
from ttpfl.data.manifest import Manifest, as_json, compare, describe, read, sha256
from ttpfl.data.own_clients import own_clients
from ttpfl.data.pixels import Pixels, textures_in, with_corrupted, write_corrupted
from ttpfl.data.plan import Plan, check_separate, plan
from ttpfl.data.population_config import config_of
from ttpfl.data.registry import Directory, Loaded, client_choices, data_directory, load
from ttpfl.data.registry import options as options_of
from ttpfl.data.storage import cache_path, is_intact
from ttpfl.errors import DataError
from ttpfl.util.parallel import Progress, cores

log = logging.getLogger("ttpfl")


class Federated(NamedTuple):
    """Clients for everyone, and the labels of target clients for the evaluator alone."""

    population: Population
    target_labels: TargetLabels
    manifest: Manifest

    @property
    def answers(self) -> TargetLabels:
        """Old name of `target_labels`."""
        warnings.warn("answers is now target_labels", DeprecationWarning, stacklevel=2)
        return self.target_labels


def federate(
    data: str | Loaded,
    *,
    data_dir: Directory = None,
    download: bool = False,
    options: Mapping[str, Any] | None = None,
    manifest: str | PathLike[str] | None = None,
    prepare: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    **choices: Any,
) -> Federated:
    """Source and target clients over a data set, or over the user's own clients.

    Args:
        data: Name of a data set, or the result of `load` or `from_huggingface`.
        data_dir: Directory of data, caches and manifests (see `load`).
        download: Download a missing data set.
        options: Options of the data set (see `load`).
        manifest: File that describes the population: written if missing, otherwise compared with the
            population. By default in the cache.
        prepare: Corrupt all images now, on all cores, and cache them. Otherwise images are corrupted on
            access, unless they are cached. The images are the same.
        workers: Processes for `prepare`; by default one per core.
        progress: Called as `progress(clients done, all clients)` during `prepare`.
        choices: Fields of `PopulationConfig`; they override the defaults of the data set. Persons, sites and
            other clients that exist by themselves have the fields of `NaturalConfig`; clients that are
            already divided into source and target clients only have `validation` and `seed`.

    >>> population, target_labels, manifest = federate(
    ...     "digits", shift="hybrid", source_clients=8, target_clients=2)
    >>> population.target[0].corruption
    Applied(name='gaussian_blur', severity=4)
    >>> manifest.target[0][4]  # images of each class
    [23, 23, 24, 23, 23, 24, 373, 24, 23, 372]
    """
    directory = data_directory(data_dir)
    images = _loaded(data, directory, download, options or {}, choices) if isinstance(data, str) else data
    if not isinstance(images, Images):
        population, target_labels, own = own_clients(images, {**images.info.defaults, **choices})
        made = describe(population, target_labels, own, _origin(images, options))
        _verify(made, manifest, directory)
        return Federated(population, target_labels, made)
    config = config_of(images.info.defaults, choices)
    divided = plan(images, config)
    check_separate(divided)
    pixels = Pixels(images.x, config.seed, textures_in(config.frost_textures))
    population, target_labels = _population(images, divided, pixels)
    origin = _origin(images, options)
    if pixels.frost_textures:
        origin["frost_textures"] = sha256(pixels.frost_textures)
    made = describe(population, target_labels, asdict(config), origin)
    _verify(made, manifest, directory)
    if config.kind.features and not config.replacement:
        path = _corrupted_path(directory, made)
        if prepare and not path.exists():
            write_corrupted(path, divided, pixels, cores() if workers is None else workers, progress)
        if path.exists():
            population, _ = _population(images, divided, with_corrupted(pixels, path))
    return Federated(population, target_labels, made)


def load_population(
    manifest: str | PathLike[str], *, data_dir: Directory = None, prepare: bool = False
) -> Federated:
    """Rebuild the population of a manifest, and verify it.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/manifest.json"
    >>> _ = federate("digits", shift="label", source_clients=8, target_clients=2, manifest=path)
    >>> load_population(path).population
    <Population of digits: 8 source clients, 2 target clients>
    """
    expected = read(manifest)
    name, options = expected.data["name"], expected.data["options"]
    return federate(
        name, data_dir=data_dir, options=options, manifest=manifest, prepare=prepare, **expected.config
    )


def _population(images: Images, divided: Plan, pixels: Pixels) -> tuple[Population, TargetLabels]:
    info, labels = images.info, images.y

    def common(client: int) -> dict[str, Any]:
        corruption = divided.corruption(client)
        return {
            "id": divided.name(client),
            "domain": divided.domain(client),
            "corruption": corruption,
            "info": info,
            "take": partial(pixels.of, client, corruption),
        }

    def source(client: int) -> SourceClient:
        return source_client(divided.ids(client), labels, divided.config.validation, **common(client))

    def target(number: int) -> TargetClient:
        client = divided.sources + number
        # Only pixels: labels must not be reachable from a target client.
        return TargetClient(**common(client), ids=divided.ids(client), shuffled=True)

    targets = len(divided) - divided.sources
    population = Population(Clients(divided.sources, source), Clients(targets, target), info)
    return population, TargetLabels(population.target, lambda client: labels[client.ids])


def _loaded(
    name: str, directory: Path, download: bool, given: Mapping[str, Any], choices: Mapping[str, Any]
) -> Loaded:
    for choice in choices.keys() & options_of(name).keys() - client_choices(name).keys():
        raise DataError(
            f"{choice} is an option of the data set {name}, not of its clients: "
            f"pass options={{{choice!r}: {choices[choice]!r}}}"
        )
    return load(name, directory, download, **given)


def _origin(data: Loaded, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The `data` of a manifest."""
    hashed = sha256(_arrays(data))
    return {"name": data.info.name, "options": as_json(options or {}), "sha256": hashed}


def _arrays(data: Loaded) -> Iterator[NDArray[Any]]:
    """All arrays of the data, for its hash."""
    if isinstance(data, Images):
        yield from (data.x, data.y, data.domain)
        return
    parts = (data.source, data.target) if isinstance(data, ClientArrays) else (data.clients,)
    for clients in parts:
        for name, (x, y) in clients.items():
            yield np.frombuffer(
                name.encode("utf-8", "surrogatepass"), np.uint8
            )  # file names can be any bytes
            yield np.asarray(x)
            if y is not None:
                yield y


def _verify(made: Manifest, path: str | PathLike[str] | None, directory: Path) -> None:
    """Compare with an earlier manifest, or write one for later runs."""
    key = {"setting": made.config, "data": made.data}
    file = cache_path(directory, made.data["name"], key, "json") if path is None else Path(path)
    if file.exists():
        compare(read(file), made, file)
        return
    try:
        made.save(file)
    except OSError as error:
        if path is not None:
            raise
        log.warning("%s could not be written (%s): this population will not be verified", file, error)


def _corrupted_path(directory: Path, made: Manifest) -> Path:
    """The cache file of corrupted images; a damaged one is removed."""
    versions = {package: version_of(package) for package in ("numpy", "scipy", "pillow")}
    key = {"population": made.digest, "ttpfl": __version__, **versions}
    path = cache_path(directory, f"{made.data['name']}-corrupted", key, "npy")
    if path.exists() and not is_intact(path):
        log.warning("removed %s, which is damaged or has no digest: its images are computed again", path)
        path.unlink()
    return path
