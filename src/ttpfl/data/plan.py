"""The plan of a population: which images and which corruption each client has."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.corruption_names import SOURCE_CORRUPTIONS, TARGET_CORRUPTIONS
from ttpfl.data.division import Division, Pool, deal, draw
from ttpfl.data.images import Images
from ttpfl.data.partition import Ids
from ttpfl.data.population_config import PopulationConfig
from ttpfl.errors import DataError
from ttpfl.util.settings_kit import check_known

SAMPLES_DRAWN = 200  # default size of a client, with replacement
# Purposes of random numbers: each has its own generator, so that none affects another.
_DEAL, _SEPARATE, _DRAW, _CORRUPTION = range(4)


class Applied(NamedTuple):
    """The corruption of a client's images."""

    name: str
    severity: int


class Part(NamedTuple):
    """Clients that share a domain."""

    domain: str
    division: Division


@dataclass(frozen=True, eq=False)
class Plan:
    """Clients 0 to `sources` - 1 are source clients, the others target clients."""

    config: PopulationConfig
    parts: tuple[Part, ...]
    sources: int

    def __len__(self) -> int:
        return int(self._ends[-1])

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([len(part.division) for part in self.parts])

    def _find(self, client: int) -> tuple[Part, int]:
        part = int(np.searchsorted(self._ends, client, side="right"))
        return self.parts[part], client - int(self._ends[part - 1] if part else 0)

    def name(self, client: int) -> str:
        """The name of a client.

        >>> Plan(PopulationConfig(), (), sources=240).name(241)
        'target-1'
        """
        return f"source-{client}" if client < self.sources else f"target-{client - self.sources}"

    def domain(self, client: int) -> str:
        """The domain of its images."""
        return self._find(client)[0].domain

    def ids(self, client: int) -> Ids:
        """The ids of its images, in its order."""
        part, number = self._find(client)
        return part.division[number]

    def corruption(self, client: int) -> Applied | None:
        """The corruption of its images, if the shift is in the features."""
        if not self.config.kind.features:
            return None
        is_source = client < self.sources
        names = SOURCE_CORRUPTIONS if is_source or self.config.in_distribution else TARGET_CORRUPTIONS
        random = np.random.default_rng((self.config.seed, _CORRUPTION, client))
        return Applied(names[random.integers(len(names))], int(random.integers(1, 6)))


def check_separate(divided: Plan) -> None:
    """Raise a DataError if two clients share an image (with replacement: a source and a target client).

    >>> from ttpfl.data.division import Dealt
    >>> shared = Dealt(np.array([4, 7, 4]), ends=np.array([1, 3]))
    >>> check_separate(Plan(PopulationConfig(), (Part("all", shared),), sources=1))
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: image 4 is in more than one client
    """
    # With replacement, source and target clients are different parts with separate pools.
    ids, counts = np.unique(np.concatenate([p.division.reach for p in divided.parts]), return_counts=True)
    if counts.max() > 1:
        raise DataError(f"image {ids[counts.argmax()]} is in more than one client")


def split(ids: Ids, validation: float) -> tuple[Ids, Ids]:
    """Split a source client's images for training and validation, with at least one for each.

    >>> split(np.arange(5), 0.2)
    (array([0, 1, 2, 3]), array([4]))
    """
    train = len(ids) - min(max(1, round(validation * len(ids))), len(ids) - 1)
    return ids[:train], ids[train:]


def plan(images: Images, config: PopulationConfig) -> Plan:
    """Divide the images among clients.

    >>> from ttpfl.data import load
    >>> made = plan(load("digits"), PopulationConfig(shift="domain", held_out="uci"))
    >>> len(made), made.sources, made.name(30), made.domain(30), made.corruption(30)
    (40, 30, 'target-0', 'uci', None)
    """
    labels, classes = images.y, len(images.info.classes)
    if not config.partition_rule.by_class:
        labels, classes = np.zeros_like(labels), 1
    if config.kind.domains:
        return _by_domain(images, config, labels, classes)
    clients = config.source_clients + config.target_clients
    domain = images.info.domains[0] if len(images.info.domains) == 1 else "all"
    if not config.replacement:
        parts = [Part(domain, _divided(Pool.of(labels, classes), clients, config, 0))]
    else:
        fraction = config.target_clients / clients
        source, target = _separated(Pool.of(labels, classes), labels, fraction, config.seed)
        parts = [
            Part(domain, _divided(source, config.source_clients, config, 0)),
            Part(domain, _divided(target, config.target_clients, config, 1)),
        ]
    return Plan(config, tuple(parts), config.source_clients)


def _by_domain(images: Images, config: PopulationConfig, labels: NDArray[np.int64], classes: int) -> Plan:
    """Target clients in the held-out domain, source clients in all others."""
    domains = images.info.domains
    if len(domains) < 2:
        raise DataError(f"{images.info.name} has only one domain: choose a shift other than 'domain'")
    if config.held_out is None:
        raise DataError(f"shift='domain' needs held_out=, one of: {', '.join(domains)}")
    check_known("domain", config.held_out, domains, DataError)
    parts = []
    for number in sorted(range(len(domains)), key=lambda number: domains[number] == config.held_out):
        pool = Pool.of(labels, classes, np.flatnonzero(images.domain == number))
        try:
            division = _divided(pool, config.clients_per_domain, config, number)
        except DataError as error:
            error.add_note(f"in domain {domains[number]}")
            raise
        parts.append(Part(domains[number], division))
    return Plan(config, tuple(parts), config.clients_per_domain * (len(domains) - 1))


def _divided(pool: Pool, clients: int, config: PopulationConfig, number: int) -> Division:
    rule, skew = config.partition_rule, config.quantity_skew
    if config.replacement:
        samples = SAMPLES_DRAWN if config.samples is None else config.samples
        return draw(pool, clients, rule, samples, skew, (config.seed, _DRAW, number))
    random = np.random.default_rng((config.seed, _DEAL, number))
    return deal(pool, clients, rule, config.samples, skew, random)


def _separated(pool: Pool, labels: NDArray[np.int64], target: float, seed: int) -> tuple[Pool, Pool]:
    """Two pools; the second has the fraction `target` of every class."""
    random = np.random.default_rng((seed, _SEPARATE))
    shuffled = [random.permutation(ids) for ids in pool.by_class()]
    cuts = [round((1 - target) * len(ids)) for ids in shuffled]
    halves = zip(*(np.split(ids, [cut]) for ids, cut in zip(shuffled, cuts, strict=True)), strict=True)
    first, second = (Pool.of(labels, len(shuffled), np.concatenate(half)) for half in halves)
    return first, second
