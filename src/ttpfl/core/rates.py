"""The vector of adaptation rates: how far each module moves along its direction."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from ttpfl._moved import renamed
from ttpfl.core import rates_file, rates_text, selection
from ttpfl.core.guard import Guard
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.network import ModuleSpec, describe, fingerprint, in_log_domain, weights_hash
from ttpfl.core.privacy_record import Account, together
from ttpfl.core.rates_fit import check_fits, check_prior, check_values
from ttpfl.core.rates_hub import OnTheHub
from ttpfl.core.selection import Granularity, Only
from ttpfl.errors import RatesError, RatesFileError
from ttpfl.util.settings_kit import one_of

log = logging.getLogger("ttpfl")

OTHER_WEIGHTS = (
    "%s was learned for other weights of this architecture. This is usually fine after further training, but "
    "compare results with and without adaptation"
)

Mode = Literal["batch", "online"]
Variance = Literal["linear", "log"]
MODES = one_of(*get_args(Mode))
VARIANCES = one_of(*get_args(Variance))


@dataclass(eq=False, repr=False)
class Rates(OnTheHub):
    """One adaptation rate per module of a network, or per group of modules.

    `values` can be changed in place or assigned; everything else describes the network. Changed values lose
    their privacy bound: see `derived`.

    >>> model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    >>> rates = Rates.zeros(model)
    >>> rates.names[:4]
    ('0.weight', '0.bias', '1.weight', '1.bias')
    >>> rates.values
    tensor([0., 0., 0., 0., 0., 0.])
    >>> Rates.zeros(model, granularity="layer", only="params").members
    {'0': ('0.weight', '0.bias'), '1': ('1.weight', '1.bias')}
    """

    values: Tensor
    modules: tuple[ModuleSpec, ...]  # modules with a rate
    granularity: Granularity = "tensor"
    only: Only | None = None
    mode: Mode = "batch"  # how the rates were refined
    fingerprint: str = ""  # of the architecture
    weights_hash: str = ""  # of the weights the rates were learned for
    prior: tuple[float, ...] = ()  # see `label_prior`; empty without it
    head: str | None = None  # name of the last layer, if known
    learned: dict[str, Any] = field(default_factory=dict)  # rounds, clients, lr, ...
    account: Account = field(default_factory=Account)  # privacy spent to learn them
    guard: Guard | None = None  # what source clients teach about harm

    @classmethod
    def zeros(
        cls,
        model: nn.Module,
        granularity: Granularity = "tensor",
        only: Only | None = None,
        variance: Variance = "linear",
        prior: Sequence[float] = (),
        head: str | None = None,
    ) -> Self:
        """Rates of zero for every module of `model` that is not frozen: nothing adapts yet.

        Args:
            model: any network.
            granularity: one rate per "tensor" (the paper), "layer", "block" or "kind".
            only: "params" has learnable tensors alone, "stats" running statistics, "prior" the label prior;
                "head" the last layer and the label prior, "forward" running statistics, too.
            variance: how variances move: "linear" (the paper), or "log": positive for any rate.
            prior: soft counts of each class to assume before a client's first sample, in the proportions of
                the source clients. They add a rate for the label prior; not in the paper.
            head: name of the last layer; the last linear layer of the network if None.

        >>> Rates.zeros(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), only="stats").names
        ('1.running_mean', '1.running_var')
        """
        selection.GRANULARITIES.check(RatesError, granularity=granularity)
        selection.ONLY.check(RatesError, only=only)
        VARIANCES.check(RatesError, variance=variance)
        head = selection.head_of(model, head, only)
        modules = selection.selected(model, only, prior, head)
        groups = selection.grouped(modules, granularity)
        return cls(
            values=torch.zeros(len(groups), dtype=torch.float32),
            modules=in_log_domain(modules) if variance == "log" else modules,
            granularity=granularity,
            only=only,
            prior=tuple(map(float, prior)) if modules[-1].name == LABEL_PRIOR else (),
            head=head,
            fingerprint=fingerprint(model, describe(model)),
            weights_hash=weights_hash(model),
        )

    @property
    def variance(self) -> Variance:
        """How running variances move, see `zeros`."""
        return "log" if any(spec.log_domain for spec in self.modules) else "linear"

    def in_log_domain(self) -> Self:
        """Return a copy whose variances move in the log domain."""
        return replace(self, modules=in_log_domain(self.modules), guard=None)

    @property
    def cost(self) -> float:
        """Expected cost of personalising a batch, in plain forward passes of the model.

        Modules with a rate of zero cost nothing. Small networks cost more: see `benchmarks/method_costs.py`.

        >>> rates = Rates.zeros(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), only="head")
        >>> rates.cost, rates.with_values(torch.ones(2)).cost
        (1.0, 1.1)
        """
        rates = self.by_module()
        return selection.expected_cost((spec for spec in self.modules if rates[spec.name] != 0), self.head)

    @property
    def groups(self) -> dict[str, tuple[ModuleSpec, ...]]:
        """Modules that share a rate, by the name of the rate, in the order of `values`.

        >>> [spec.kind for spec in Rates.zeros(nn.Linear(3, 2), granularity="layer").groups["weight"]]
        ['linear.weight']
        """
        return selection.grouped(self.modules, self.granularity)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rates: state-dict keys in state-dict order, or names of groups."""
        return tuple(self.groups)

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """State-dict keys that each rate moves."""
        return {name: tuple(spec.name for spec in specs) for name, specs in self.groups.items()}

    @property
    def sizes(self) -> Tensor:
        """Number of scalars that each rate moves.

        >>> Rates.zeros(nn.Linear(3, 2)).sizes
        tensor([6, 2])
        """
        return torch.tensor([sum(spec.size for spec in specs) for specs in self.groups.values()])

    def by_module(self) -> dict[str, Tensor]:
        """Each module's rate as a scalar tensor, by state-dict key.

        >>> Rates.zeros(nn.Linear(3, 2)).with_values(torch.tensor([0.5, 0.0])).by_module()
        {'weight': tensor(0.5000), 'bias': tensor(0.)}
        """
        groups = zip(self.values.detach().unbind(), self.groups.values(), strict=True)
        return {spec.name: rate for rate, specs in groups for spec in specs}

    def with_values(self, values: Tensor, **changes: Any) -> Self:
        """Return a copy with other values; `changes` are further fields.

        If the values differ, the copy has no privacy bound: see `derived`.

        >>> Rates.zeros(nn.Linear(3, 2)).with_values(torch.tensor([0.1, 0.2])).values
        tensor([0.1000, 0.2000])
        """
        return replace(self, values=values, **changes).checked()

    def derived(self, values: Tensor) -> Self:
        """Return a copy with values computed from these rates alone, such as rounded ones.

        This costs no further privacy, so the account stays valid. After `with_values`, or a change in place,
        the origin of the values is unknown and there is no bound.

        >>> zeros = Rates.zeros(nn.Linear(3, 2))
        >>> zeros.derived(zeros.values + 1).current_account().no_bound
        ''
        >>> zeros.with_values(zeros.values + 1).current_account().no_bound
        'the values were changed after they were learned, or set by hand'
        """
        return self.with_values(values, account=together([self.current_account()], values))

    def current_account(self) -> Account:
        """Privacy account of the current values; without a bound if they were changed."""
        return self.account.of(self.values)

    def checked(self) -> Self:
        """Return these rates; raise a RatesError unless `values` are finite and one per rate.

        >>> rates = Rates.zeros(nn.Linear(3, 2))
        >>> rates.values[1] = float("nan")
        >>> rates.checked()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ttpfl.errors.RatesError: the rate of 'bias' is nan: ...
        """
        check_values(self.values, self.names)
        return self

    def with_prior(self, prior: Sequence[float]) -> Self:
        """Return a copy with other soft counts of the label prior."""
        return replace(self, prior=tuple(map(float, prior)), guard=None)

    def check_fits(self, model: nn.Module) -> None:
        """Raise a RatesError that names the first difference if `model` has another architecture."""
        check_fits(self.modules, self.fingerprint, model)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file of a few kB, replacing an existing file atomically.

        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "rates.safetensors")
        >>> model = nn.Linear(3, 2)
        >>> Rates.zeros(model).save(path)
        >>> Rates.load(path, model=model).names
        ('weight', 'bias')
        """
        rates_file.write(path, {**vars(self.checked()), "variance": self.variance}, self.names)

    @classmethod
    def load(cls, path: str | PathLike[str], model: nn.Module | None = None) -> Self:
        """Read a rates file; with `model`, check that the rates fit it.

        Another architecture is an error. Other weights of the same architecture only cause a warning, since
        rates stay useful after further training (the paper's Table 6).

        >>> import tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "rates.safetensors")
        >>> Rates.zeros(nn.Linear(3, 2)).save(path)
        >>> Rates.load(path, model=nn.Linear(3, 4))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        ttpfl.errors.RatesError: ... module 'weight' has shape (2, 3) in the rates, and the model has ...
        """
        fields = rates_file.read(path)
        variance = fields.pop("variance")
        rates = cls(**fields)
        try:
            VARIANCES.check(RatesError, variance=variance)
            if variance == "log":
                rates.modules = in_log_domain(rates.modules)
            selection.GRANULARITIES.check(RatesError, granularity=rates.granularity)
            selection.ONLY.check(RatesError, only=rates.only)
            MODES.check(RatesError, mode=rates.mode)
            check_prior(rates.checked().modules, rates.prior)
        except RatesError as error:
            raise RatesFileError(f"{path} is not a valid rates file: {error}") from None
        if model is not None:
            rates.check_fits(model)
            if rates.weights_hash and rates.weights_hash != weights_hash(model):
                log.warning(OTHER_WEIGHTS, path)
        return rates

    def table(self) -> str:
        """Format every rate, grouped by block and kind.

        >>> rates = Rates.zeros(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)))
        >>> rates.values[:] = torch.tensor([0.5, -0.25, 0.0, 1.0])
        >>> print(rates.table())
        block  name      kind           rate
        0      0.weight  linear.weight  +0.5               |######
        0      0.bias    linear.bias    -0.25           ###|
        1      1.weight  linear.weight  +0                 |
        1      1.bias    linear.bias    +1                 |############
        a batch costs about 4 forward passes
        """
        return f"{rates_text.listing(self.groups, self.values)}\n{rates_text.price(self.cost)}"

    def __str__(self) -> str:
        heading = f"{len(self.values)} rates, one per {self.granularity}, refined in {self.mode} mode"
        return (
            f"{heading}; {rates_text.price(self.cost)}\n{rates_text.summary(self.modules, self.by_module())}"
        )

    def __repr__(self) -> str:
        return f"<Rates: {len(self.values)} per {self.granularity}, {self.mode} mode>"


__getattr__ = renamed(__name__)
