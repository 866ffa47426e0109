"""From data to a population of clients: divide, verify, and keep corrupted images for the next time."""

import logging
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
from ttpfl.data.clients import Clients, Population, SourceClient, TargetClient, TargetLabels
from ttpfl.data.extras import version_of
from ttpfl.data.images import Images
from ttpfl.data.manifest import Manifest, as_json, compare, describe, read, sha256
from ttpfl.data.own_clients import own_config, own_population
from ttpfl.data.pixels import Pixels, textures_in, with_corrupted, write_corrupted
from ttpfl.data.plan import Plan, check_separate, plan, split
from ttpfl.data.population_config import config_of
from ttpfl.data.registry import data_directory, load
from ttpfl.data.storage import cache_path, is_intact
from ttpfl.util.parallel import Progress, cores

log = logging.getLogger("ttpfl")


class Federated(NamedTuple):
    """Clients for everybody, and the labels of target clients for the evaluator alone."""

    population: Population
    answers: TargetLabels
    manifest: Manifest


def federate(
    data: str | Images | ClientArrays,
    *,
    data_dir: str | PathLike[str] | None = None,
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
        data: a name for `load`, or what `load` or `from_huggingface` gave.
        data_dir: where data is, and where caches and manifests are kept (see `load`).
        download: whether a missing data set may be downloaded.
        options: of the data set, for `load`.
        manifest: the file that says what the population is made of: written if it is not there, compared
            with if it is. In the cache if None.
        prepare: corrupt all images now, on all cores, into a file in the cache. Otherwise a client's are
            corrupted whenever it is asked for them, unless that file is there. The images are the same.
        workers: processes for that; one per core if None.
        progress: called as `progress(clients done, all clients)` meanwhile.
        choices: fields of `PopulationConfig`, over the data set's own defaults. For the user's own clients,
            which are what they are: `validation` and `seed`.

    >>> population, answers, manifest = federate("digits", shift="hybrid", source_clients=8, target_clients=2)
    >>> population.target[0].corruption
    Applied(name='gaussian_blur', severity=4)
    >>> manifest.target[0][4]  # images of each class
    [23, 23, 24, 23, 23, 24, 373, 24, 23, 372]
    """
    directory = data_directory(data_dir)
    workers = cores() if workers is None else workers
    found = load(data, directory, download, **(options or {})) if isinstance(data, str) else data

    def verified(
        population: Population, answers: TargetLabels, said: dict[str, Any], **hashes: str
    ) -> Manifest:
        origin = {
            "name": found.info.name,
            "options": as_json(options or {}),
            "sha256": sha256(_arrays(found)),
        }
        made = describe(population, answers, said, {**origin, **hashes})
        _verify(made, manifest, directory)
        return made

    if isinstance(found, ClientArrays):
        own = own_config(choices)
        population, answers = own_population(found, **own)
        return Federated(population, answers, verified(population, answers, own))
    config = config_of(found.info.defaults, choices)
    divided = plan(found, config)
    check_separate(divided)
    pixels = Pixels(found.x, config.seed, textures_in(config.frost_textures))
    population, answers = _population(found, divided, pixels)
    textures = {"frost_textures": sha256(pixels.frost_textures)} if pixels.frost_textures else {}
    made = verified(population, answers, asdict(config), **textures)
    if config.kind.features and not config.replacement:
        path = _corrupted_path(directory, made)
        if path.exists() and not is_intact(path):
            log.warning("%s is damaged or has no digest, and is removed: its images are made again", path)
            path.unlink()
        if prepare and not path.exists():
            write_corrupted(path, divided, pixels, workers, progress)
        if path.exists():
            population, _ = _population(found, divided, with_corrupted(pixels, path))
    return Federated(population, answers, made)


def load_population(
    manifest: str | PathLike[str], *, data_dir: str | PathLike[str] | None = None, prepare: bool = False
) -> Federated:
    """The population of a manifest, built again and verified.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/manifest.json"
    >>> _ = federate("digits", shift="label", source_clients=8, target_clients=2, manifest=path)
    >>> load_population(path).population
    <Population of digits: 8 source clients, 2 target clients>
    """
    said = read(manifest)
    return federate(
        said.data["name"],
        data_dir=data_dir,
        options=said.data["options"],
        manifest=manifest,
        prepare=prepare,
        **said.config,
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
        train, held_back = split(divided.ids(client), divided.config.validation)
        return SourceClient(
            **common(client),
            train_ids=train,
            train_labels=labels[train],
            validation_ids=held_back,
            validation_labels=labels[held_back],
        )

    def target(number: int) -> TargetClient:
        client = divided.sources + number
        # Only pixels: whoever has a target client must not be able to find labels.
        return TargetClient(**common(client), ids=divided.ids(client), shuffled=True)

    def answer(client: TargetClient) -> NDArray[np.int64]:
        return labels[client.ids]

    targets = len(divided) - divided.sources
    population = Population(Clients(divided.sources, source), Clients(targets, target), info)
    return population, TargetLabels(population.target, answer)


def _arrays(data: Images | ClientArrays) -> Iterator[NDArray[Any]]:
    """All that the data consists of."""
    if isinstance(data, Images):
        yield from (data.x, data.y, data.domain)
        return
    for clients in (data.source, data.target):
        for name, (x, y) in clients.items():
            yield np.frombuffer(name.encode("utf-8", "surrogatepass"), np.uint8)  # it may be any bytes
            yield x
            if y is not None:
                yield y


def _verify(made: Manifest, path: str | PathLike[str] | None, directory: Path) -> None:
    """Compare with the manifest of an earlier time, or write it for later ones."""
    key = {"setting": made.config, "data": made.data}
    place = cache_path(directory, made.data["name"], key, "json") if path is None else Path(path)
    if place.exists():
        compare(read(place), made, place)
        return
    try:
        made.save(place)
    except OSError as error:
        if path is not None:
            raise
        log.warning("%s could not be kept (%s): this population will not be verified", place, error)


def _corrupted_path(directory: Path, made: Manifest) -> Path:
    key = {
        "population": made.digest,
        "ttpfl": __version__,
        **{package: version_of(package) for package in ("numpy", "scipy", "pillow")},
    }
    return cache_path(directory, f"{made.data['name']}-corrupted", key, "npy")
