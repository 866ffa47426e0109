"""Who has what: from a setting and labels to the images and the corruption of each client."""

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

SAMPLES_DRAWN = 200  # of a client, with replacement, if nothing is asked for
# What a random number is for: numbers for different purposes never depend on each other.
_DEAL, _SEPARATE, _DRAW, _CORRUPTION = range(4)


class Applied(NamedTuple):
    """The corruption that a client's camera has."""

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
        """What the client is called.

        >>> Plan(PopulationConfig(), (), sources=240).name(241)
        'target-1'
        """
        return f"source-{client}" if client < self.sources else f"target-{client - self.sources}"

    def domain(self, client: int) -> str:
        """The domain that its images come from."""
        return self._find(client)[0].domain

    def ids(self, client: int) -> Ids:
        """Its images, in its own order."""
        part, number = self._find(client)
        return part.division[number]

    def corruption(self, client: int) -> Applied | None:
        """What its camera does to the images, where the shift is in the features."""
        if not self.config.kind.features:
            return None
        own = client < self.sources or self.config.in_distribution
        names = SOURCE_CORRUPTIONS if own else TARGET_CORRUPTIONS
        random = np.random.default_rng((self.config.seed, _CORRUPTION, client))
        return Applied(names[random.integers(len(names))], int(random.integers(1, 6)))


def check_separate(divided: Plan) -> None:
    """Raise a DataError if an image is in two clients (with replacement: in a source and a target client).

    >>> from ttpfl.data.division import Dealt
    >>> shared = Dealt(np.array([4, 7, 4]), ends=np.array([1, 3]))
    >>> check_separate(Plan(PopulationConfig(), (Part("all", shared),), sources=1))
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: image 4 is in more than one client
    """
    # With replacement source and target clients are different parts, each with a pool of its own.
    ids, times = np.unique(
        np.concatenate([part.division.reach for part in divided.parts]), return_counts=True
    )
    if times.max() > 1:
        raise DataError(f"image {ids[times.argmax()]} is in more than one client")


def split(ids: Ids, validation: float) -> tuple[Ids, Ids]:
    """A source client's images for training and for validation: at least one for each.

    >>> split(np.arange(5), 0.2)
    (array([0, 1, 2, 3]), array([4]))
    """
    held_back = min(max(1, round(validation * len(ids))), len(ids) - 1)
    return ids[: len(ids) - held_back], ids[len(ids) - held_back :]


def plan(images: Images, config: PopulationConfig) -> Plan:
    """Divide the images over clients.

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
        part = config.target_clients / clients
        source, target = _separated(Pool.of(labels, classes), labels, part, config.seed)
        parts = [
            Part(domain, _divided(source, config.source_clients, config, 0)),
            Part(domain, _divided(target, config.target_clients, config, 1)),
        ]
    return Plan(config, tuple(parts), config.source_clients)


def _by_domain(images: Images, config: PopulationConfig, labels: NDArray[np.int64], classes: int) -> Plan:
    """Source clients in all domains but the one that is held out, which has the target clients."""
    domains = images.info.domains
    if len(domains) < 2:
        raise DataError(f"{images.info.name} has one domain only: choose another shift than 'domain'")
    if config.held_out is None:
        raise DataError(f"which domain is held out? Pass held_out=, one of: {', '.join(domains)}")
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
    """Two pools, of which the second has the part `target` of every class."""
    random = np.random.default_rng((seed, _SEPARATE))
    shuffled = [random.permutation(ids) for ids in pool.by_class()]
    cuts = [round((1 - target) * len(ids)) for ids in shuffled]
    first = np.concatenate([ids[:cut] for ids, cut in zip(shuffled, cuts, strict=True)])
    second = np.concatenate([ids[cut:] for ids, cut in zip(shuffled, cuts, strict=True)])
    return Pool.of(labels, len(shuffled), first), Pool.of(labels, len(shuffled), second)
