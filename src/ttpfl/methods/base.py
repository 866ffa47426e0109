"""The interface of test-time methods.

A method is a frozen dataclass whose fields are its hyper-parameters. Each source client may compute a summary
of its labelled validation data; summaries are summed over clients, so they can be federated as rates are. At
a target client, `adapter` creates an instance that receives the client's unlabelled batches one by one and
returns their logits.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ttpfl._moved import renamed
from ttpfl.core.direction import check_finite
from ttpfl.core.inputs import Inputs, all_finite, checked
from ttpfl.core.outputs import logits_of
from ttpfl.core.private_copy import private_copy
from ttpfl.core.rates import Rates
from ttpfl.core.runner import Runner
from ttpfl.core.twin import isolated
from ttpfl.core.watch import Evidence
from ttpfl.errors import BatchError, MethodError
from ttpfl.methods.normalisation import BatchNorm, BatchNormCall, in_place_of_torch
from ttpfl.util.settings_kit import Rule, check_fields, check_known, find

Summary = dict[str, Tensor]
Labelled = Iterable[tuple[Any, Tensor]]
ENTRY_POINTS = "ttpfl.methods"

T = TypeVar("T")
M = TypeVar("M", bound="type[Method]")


@dataclass(frozen=True)
class SourceInfo:
    """Information from the source clients."""

    summary: Summary = field(default_factory=dict)
    """The sum of the source clients' summaries."""
    rates: Mapping[str, Rates] = field(default_factory=dict)
    """Learned rates: "all", and for the ablation "params" and "stats"."""


class Adapter(ABC):
    """A method at one client. It works on its own copy of the model."""

    evidence: Evidence | None = None
    """What a guard knows about the stream so far; None without a guard."""

    def __init__(self, model: nn.Module) -> None:
        self.model = own_copy(model)
        self.runner = Runner(self.model)

    def __call__(self, batch: Any) -> Tensor:
        """Adapt to an unlabelled batch and return its logits.

        An unusable batch (empty, NaN) raises an error and changes nothing.
        """
        with isolated():
            (batch,), _ = checked(Inputs((batch,), {})).map(Tensor.clone)  # a model may modify it in place
            logits = self.adapt(batch).detach()
        if not all_finite(logits):
            raise BatchError(
                "the logits are not finite: try a smaller learning rate, or check the unadapted model"
            )
        return logits

    @torch.no_grad()
    def plain(self, batch: Any) -> Tensor:
        """The model's logits by its own operations; an error if they are not finite."""
        return check_finite(self.runner.plain(Inputs((batch,), {})))

    def fast(self, batch: Any, batch_norm: BatchNorm = BatchNormCall.compute) -> Tensor:
        """The model's logits by the fastest available operations; `batch_norm` replaces torch's."""
        return self.runner.fast(Inputs((batch,), {}), in_place_of_torch(batch_norm))

    @abstractmethod
    def adapt(self, batch: Any) -> Tensor:
        """The method itself. Autograd is on, but parameters require gradients only if the method says so."""

    @abstractmethod
    def reset(self) -> None:
        """Restore the initial state, as between two clients."""


class StatelessAdapter(Adapter):
    """A method that treats every batch independently."""

    def reset(self) -> None:
        """Do nothing: there is no state."""


def own_copy(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode that returns logits and supports autograd, even under inference mode."""
    copy = private_copy(model).eval().requires_grad_(False)
    copy.register_forward_hook(lambda module, args, output: logits_of(output))
    return copy


RENAMED = (("personal", "adapter"), ("remembers", "stateful"), ("asks_by", "summary_key"))
"""Members of a method in version 0.1, which are still accepted, and their new names."""


@dataclass(frozen=True)
class Method(ABC):
    """A test-time method; its fields are its hyper-parameters, defined with `tunable`."""

    name: ClassVar[str] = ""
    needs_rates: ClassVar[str | None] = None
    """The kind of learned rates that it requires."""
    stateful: ClassVar[bool] = True
    """Whether logits depend on earlier batches. Tuning is faster if they do not."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Accept methods that use the names of version 0.1."""
        super().__init_subclass__(**options)
        for old, new in RENAMED:
            if old in vars(cls):
                warnings.warn(f"{cls.__name__}.{old} is now {new}", DeprecationWarning, stacklevel=3)
                setattr(cls, new, vars(cls)[old])
            elif new in vars(cls):
                setattr(cls, old, vars(cls)[new])  # for subclasses and callers that use the old name

    def __post_init__(self) -> None:
        """Check the limits; None is valid where it is the default."""
        check_fields(self, MethodError)

    @abstractmethod
    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A fresh instance for one client; the model is not changed."""

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """A source client's summary of its labelled validation data; empty by default.

        Summaries are summed over clients.
        """
        return {}

    @property
    def needs_source(self) -> bool:
        """Whether source clients have to compute summaries."""
        return type(self).summary is not Method.summary

    def summary_key(self) -> Any:
        """The hyper-parameters that summaries depend on: equal keys mean equal summaries. Default: all."""
        return self if self.needs_source else None

    def identity(self) -> dict[str, Any]:
        """The hyper-parameters by which stored results are found: without neutral ones at their defaults."""
        return {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if not entry.metadata.get("neutral") or getattr(self, entry.name) != entry.default
        }

    @classmethod
    def grid(cls) -> dict[str, tuple[Any, ...]]:
        """The values over which each hyper-parameter is tuned."""
        return {entry.name: entry.metadata["grid"] for entry in fields(cls) if entry.metadata.get("grid")}


def tunable(
    default: T, help: str, grid: tuple[T, ...] = (), limit: Rule | None = None, neutral: bool = False
) -> T:
    """A hyper-parameter with its help text, tuning grid and valid values.

    If you add one to a method that is in use, and its default changes nothing, say `neutral=True`: results
    that were stored before stay valid.

    >>> from ttpfl.methods.limits import whole_number
    >>> @dataclass(frozen=True)
    ... class Coin(Method):
    ...     sides: int = tunable(2, "sides of the coin", limit=whole_number(2))
    ...     def adapter(self, model, source_info): ...
    >>> Coin(sides=1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: sides must be an integer of at least 2, got 1
    """
    return field(default=default, metadata={"help": help, "grid": grid, "limit": limit, "neutral": neutral})


_methods: dict[str, type[Method]] = {}


def method(name: str) -> Callable[[M], M]:
    """Register the decorated class under a name, for the command line, tables and tests.

    Other packages can instead declare an entry point in the group "ttpfl.methods".

    >>> @method("coin")
    ... @dataclass(frozen=True)
    ... class Coin(Method):
    ...     def adapter(self, model, source_info): ...
    >>> "coin" in names(), make("coin")
    (True, Coin())
    >>> del _methods["coin"]
    """

    def register(cls: M) -> M:
        if _methods.get(name, cls).__qualname__ != cls.__qualname__:
            raise MethodError(f"there is already a method {name!r}: choose another name")
        cls.name = name
        _methods[name] = cls
        return cls

    return register


def names() -> tuple[str, ...]:
    """The names of all methods, starting with the baseline "none".

    >>> names()[0]
    'none'
    """
    return tuple(_all_methods())


def get(name: str) -> type[Method]:
    """The class of a method, or an error that lists all methods."""
    if name in _methods:  # searching entry points takes longer than everything else
        return _methods[name]
    return find("method", name, _all_methods(), MethodError)


def make(name: str, /, **config: Any) -> Method:
    """Create a method; hyper-parameters that are not in `config` have their defaults.

    >>> make("nonne")
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: unknown method 'nonne'; did you mean 'none'? Available: none, ...
    """
    cls = get(name)
    for key in config:
        check_known("hyper-parameter", key, [field.name for field in fields(cls)], MethodError, f"of {name}")
    return cls(**config)


def _all_methods() -> dict[str, type[Method]]:
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in _methods:
            method(point.name)(point.load())
    return {name: _methods[name] for name in sorted(_methods, key=lambda name: (name != "none", name))}


def add(summaries: Iterable[Summary]) -> Summary:
    """The sum of summaries in double precision.

    >>> add([{"n": torch.tensor(1.0)}, {"n": torch.tensor(2.0)}])
    {'n': tensor(3., dtype=torch.float64)}
    """
    total: Summary = {}
    for summary in summaries:
        for key, value in summary.items():
            total[key] = total.get(key, torch.zeros_like(value, dtype=torch.float64)) + value.double()
    return total


__getattr__ = renamed(__name__)
