"""The work at a site: the same functions as on one machine, on data that does not leave it."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ttpfl.core.direction import entropy
from ttpfl.core.direction_cache import DirectionCache
from ttpfl.core.learning import cross_entropy
from ttpfl.core.rates import Rates
from ttpfl.core.twin import Twin
from ttpfl.data import ClientArrays, load
from ttpfl.data.clients import SourceClient
from ttpfl.data.own_clients import own_population
from ttpfl.errors import DataError, RefusedError
from ttpfl.federation.clients.guard_work import GuardWork
from ttpfl.federation.clients.local_training import LocalTrainer
from ttpfl.federation.clients.model_work import ModelWork, algorithm_of
from ttpfl.federation.clients.rate_work import RatesWork
from ttpfl.federation.common.client_pool import ClientPool, Part
from ttpfl.federation.common.jobs import Job, Work
from ttpfl.federation.common.rate_vector import packed
from ttpfl.federation.common.state import Report
from ttpfl.federation.common.state_vector import layout_of
from ttpfl.federation.guard_run import layout_of as guard_layout
from ttpfl.federation.settings import LearnSettings, RunSettings, TrainSettings
from ttpfl.flower import model_store
from ttpfl.flower.messages import Task
from ttpfl.flower.site import Site
from ttpfl.util.limits import MOST_CLASSES
from ttpfl.util.threads import threads

PART: dict[str, Part] = {"learn": "validation", "guard": "validation", "train": "train"}
DIRECTIONS = 256 * 2**20  # bytes of the cache of directions, which lives for one task


def client_of(site: Site, outputs: int | None = None) -> SourceClient:
    """The site's data, split into a part for training and a part for learning rates.

    If the site lists no classes, labels may range over the model's outputs, if their number is known: a site
    need not have data of every class.
    """
    folder, layout = site.home / site.data, cast(Literal["arrays"], site.layout)
    classes = site.classes
    if classes is None and outputs is not None:
        classes = [str(number) for number in range(outputs)]
    given = {"scale": site.scale, "mean": site.mean, "std": site.std}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    data = load(layout, folder, image_size=site.image_size, classes=classes, **options)
    if not isinstance(data, ClientArrays):
        raise DataError(
            f"{folder} has a file with several clients: a site is one client, in source/<name>.npz"
        )
    if data.info.shape and not data.info.mean:  # its own would not be those that the model was trained with
        raise DataError("the samples are no images: give mean and std in site.toml, the same at every site")
    if len(data.source) != 1:
        raise DataError(
            f"{folder} has {len(data.source)} source clients: a site is one client, "
            "so put all of its data under one name"
        )
    return own_population(data, site.validation, site.seed)[0].source[0]


def work_on(
    site: Site, task: Task, settings: RunSettings, vector: Tensor, start: Tensor | None
) -> tuple[Tensor, Report]:
    """Do a task that the site's policy allows; return its vector and report."""
    path = site.model_file(task.model)
    model = model_store.load(path, task.model, task.fingerprint, site.policy.models)
    client = client_of(site, model_store.outputs_of(path))
    _check_sizes(client, task.kind, settings, site.policy.fewest_samples)
    client_pool = ClientPool(OneOfMany(client, task.client, task.clients))
    work, length = _make_work(model, client_pool, settings, task)
    if vector.shape != (length,) or vector.dtype != torch.float32:
        raise RefusedError(f"the vector is {vector.dtype} {tuple(vector.shape)}, not {(length,)}")
    site.policy.check_vector(
        task.kind, vector, _counts(work), work.layout.rates if isinstance(work, GuardWork) else None
    )
    result = torch.zeros(length)
    if start is not None:
        result[: len(start)] = start
    site.budget.spend(settings)
    with threads(site.threads):
        report = work(Job(task.client, site.name, task.round), vector, result)
    return result, report


def _counts(work: Work) -> int:
    """How many numbers at the end of a vector are not rates but the counts of a label prior."""
    if isinstance(work, GuardWork) or (isinstance(work, RatesWork) and work.settings.searches):
        return len(work.initial.prior)
    return 0


def _check_sizes(client: SourceClient, kind: str, settings: RunSettings, fewest: int) -> None:
    """Refuse a task if it would disclose sums over few samples of any part of the data."""
    if client.size(PART[kind]) < fewest:
        raise RefusedError(f"this site has fewer samples than its minimum of {fewest}")
    # No samples at all disclose nothing.
    if getattr(settings, "validate_every", 0) and 0 < client.size("validation") < fewest:
        raise RefusedError(
            f"this site has fewer validation samples than its minimum of {fewest}: "
            "train with validate_every = 0"
        )


def _make_work(
    model: nn.Module, client_pool: ClientPool, settings: RunSettings, task: Task
) -> tuple[Work, int]:
    """The work of a task, and the length of its vectors."""
    rates = task.rates
    if isinstance(settings, LearnSettings):
        options = (
            rates.get("only"),
            rates.get("variance", "linear"),
            _unknown_prior(rates),
            rates.get("head"),
        )
        zeros = Rates.zeros(model, rates.get("granularity", "tensor"), *options)
        twin, cache = Twin(model, zeros.modules), DirectionCache(DIRECTIONS, keep="first")
        if task.kind == "guard":
            layout = guard_layout(zeros)
            return GuardWork([twin], zeros, client_pool, settings, entropy, layout), layout.length
        work = RatesWork((twin,), zeros, client_pool, settings, cache, entropy, cross_entropy)
        return work, len(packed(zeros)) if settings.searches else len(zeros.values)
    assert isinstance(settings, TrainSettings)
    algorithm = algorithm_of(settings)
    trainer = LocalTrainer(model, settings, algorithm.proximal)
    state = layout_of(model)
    return ModelWork(trainer, client_pool, state, settings, algorithm.needs_loss_before), state.length


def _unknown_prior(rates: dict[str, Any]) -> list[float]:
    """The label prior in the form that the site gets with each task."""
    classes = rates.get("classes", 0)
    if type(classes) is not int or not 0 <= classes <= MOST_CLASSES:
        raise RefusedError(f"the label prior has {classes!r:.40} classes")
    return [0.0] * classes


class OneOfMany(Sequence[SourceClient]):
    """One client under its number among all, which determines its random numbers, as on one machine."""

    def __init__(self, client: SourceClient, number: int, count: int) -> None:
        self._client, self._number, self._count = client, number, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if number != self._number:
            raise IndexError(f"client {number} is at another site")
        return self._client
