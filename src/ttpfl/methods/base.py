"""One interface for every way to adapt at test time.

A method is a frozen dataclass whose fields are its hyper-parameters. On the source side it may ask each
client for a summary of its labelled validation data; summaries are added up over clients, so they can be
federated as rates are. At a target client, `personal` makes an instance that sees the client's unlabelled
batches, one after the other, and answers each with logits.
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
from ttpfl.core.rates import Rates
from ttpfl.core.runner import Runner
from ttpfl.core.twin import isolated, private_copy
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
    """What a method knows from the source side."""

    summary: Summary = field(default_factory=dict)
    """The sum of the source clients' summaries."""
    rates: Mapping[str, Rates] = field(default_factory=dict)
    """Learned rates: "all", and for the ablation "params" and "stats"."""


class Adapter(ABC):
    """A method at one client. It works on a copy of the model, which it may change as it likes."""

    def __init__(self, model: nn.Module) -> None:
        self.model = own_copy(model)
        self.runner = Runner(self.model)

    def __call__(self, batch: Any) -> Tensor:
        """Logits of an unlabelled batch, after learning from it what the method learns.

        A batch that cannot be used (empty, NaN) raises an error, and nothing is learned from it.
        """
        with isolated():
            (own,), _ = checked(Inputs((batch,), {})).map(Tensor.clone)  # a model may work on it in place
            logits = self.adapt(own).detach()
        if not all_finite(logits):
            raise BatchError(
                "the logits are not finite: try a smaller step size, or check the model, if its own are not"
            )
        return logits

    @torch.no_grad()
    def plain(self, batch: Any) -> Tensor:
        """The model's logits by its own operations, if they are finite; else an error."""
        return check_finite(self.runner.plain(Inputs((batch,), {})))

    def fast(self, batch: Any, batch_norm: BatchNorm = BatchNormCall.compute) -> Tensor:
        """The model's logits in the fastest way known, with `batch_norm` wherever it calls torch's."""
        return self.runner.fast(Inputs((batch,), {}), in_place_of_torch(batch_norm))

    @abstractmethod
    def adapt(self, batch: Any) -> Tensor:
        """The method itself. Gradients are on; parameters require one only if the method says so."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything learned so far, as between two clients: exactly as if new."""


def own_copy(model: nn.Module) -> nn.Module:
    """A copy in evaluation mode that gives logits and is ready for autograd, also under inference mode."""
    own = private_copy(model).eval().requires_grad_(False)
    own.register_forward_hook(_logits_alone)
    return own


def _logits_alone(model: nn.Module, args: tuple[Any, ...], output: Any) -> Tensor:
    return logits_of(output)


@dataclass(frozen=True)
class Method(ABC):
    """A way to adapt; its fields are its hyper-parameters, made with `tunable`."""

    name: ClassVar[str] = ""
    needs_rates: ClassVar[str | None] = None
    """Which of the learned rates it cannot do without."""
    stateful: ClassVar[bool] = True
    """Whether what it answers depends on the batches before. If not, say so: it is tuned faster."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Accept methods written for 0.1, whose names were other ones."""
        super().__init_subclass__(**options)
        for old, new in (("personal", "adapter"), ("remembers", "stateful"), ("asks_by", "summary_key")):
            if old in vars(cls):
                warnings.warn(f"{cls.__name__}.{old} is now {new}", DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])

    def __post_init__(self) -> None:
        """Refuse values beyond their limits; None is a value where it is the default."""
        check_fields(self, MethodError)

    @abstractmethod
    def adapter(self, model: nn.Module, source_info: SourceInfo) -> Adapter:
        """A fresh instance for one client; the model is not changed."""

    def summary(self, model: nn.Module, batches: Labelled) -> Summary:
        """What a source client tells about its labelled validation data; most methods need nothing.

        Summaries of clients are added up.
        """
        return {}

    @property
    def needs_source(self) -> bool:
        """Whether source clients have to be asked."""
        return type(self).summary is not Method.summary

    def summary_key(self) -> Any:
        """What of the hyper-parameters decides about the summaries: where it is the same, they are, too.

        All of them, unless the method knows better.
        """
        return self if self.needs_source else None

    @classmethod
    def grid(cls) -> dict[str, tuple[Any, ...]]:
        """The values that each hyper-parameter is tuned over."""
        return {entry.name: entry.metadata["grid"] for entry in fields(cls) if entry.metadata.get("grid")}


def tunable(default: T, help: str, grid: tuple[T, ...] = (), limit: Rule | None = None) -> T:
    """A hyper-parameter with its help, the values to choose from on source clients, and what it may be.

    >>> from ttpfl.methods.limits import whole_number
    >>> @dataclass(frozen=True)
    ... class Coin(Method):
    ...     sides: int = tunable(2, "of the coin", limit=whole_number(2))
    ...     def adapter(self, model, source_info): ...
    >>> Coin(sides=1)
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: sides must be an integer of at least 2, got 1
    """
    return field(default=default, metadata={"help": help, "grid": grid, "limit": limit})


_methods: dict[str, type[Method]] = {}


def method(name: str) -> Callable[[M], M]:
    """Register the decorated class under a name: with that it is in the command line, tables and tests.

    Packages of their own register with an entry point in the group "ttpfl.methods" instead.

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
    """All methods, by name; no adaptation, with which they are compared, comes first.

    >>> names()[0]
    'none'
    """
    return tuple(_known())


def get(name: str) -> type[Method]:
    """The class of a method, or an error that lists the known ones."""
    if name in _methods:  # looking for other packages' methods takes longer than all the rest
        return _methods[name]
    return find("method", name, _known(), MethodError)


def make(name: str, /, **config: Any) -> Method:
    """A method by its name, with hyper-parameters other than the defaults.

    >>> make("nonne")
    Traceback (most recent call last):
        ...
    ttpfl.errors.MethodError: unknown method 'nonne'; did you mean 'none'? Available: none, ...
    """
    cls = get(name)
    known = [entry.name for entry in fields(cls)]
    for key in config:
        check_known("hyper-parameter", key, known, MethodError, f"of {name}")
    return cls(**config)


def _known() -> dict[str, type[Method]]:
    for point in entry_points(group=ENTRY_POINTS):
        if point.name not in _methods:
            method(point.name)(point.load())
    return {name: _methods[name] for name in sorted(_methods, key=lambda name: (name != "none", name))}


def add(summaries: Iterable[Summary]) -> Summary:
    """The sum of summaries, in double precision.

    >>> add([{"n": torch.tensor(1.0)}, {"n": torch.tensor(2.0)}])
    {'n': tensor(3., dtype=torch.float64)}
    """
    total: Summary = {}
    for summary in summaries:
        for key, value in summary.items():
            total[key] = total.get(key, torch.zeros_like(value, dtype=torch.float64)) + value.double()
    return total


__getattr__ = renamed(__name__, {"Knowledge": "SourceInfo", "Personal": "Adapter"})
