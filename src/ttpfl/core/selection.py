"""Which modules of a network get rates, and what it costs to move them."""

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from torch import nn

from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.last_layer import linear_layers
from ttpfl.core.levels import COSTS, NOTHING
from ttpfl.core.network import ModuleSpec, describe, prior_spec, uncompiled
from ttpfl.errors import RatesError
from ttpfl.util.settings_kit import one_of

Granularity = Literal["tensor", "layer", "block", "kind"]
GRANULARITIES = one_of(*get_args(Granularity))
Only = Literal["params", "stats", "prior", "head", "forward"]
ONLY = one_of(*get_args(Only), None)


def no_last_layer(only: str | None) -> str:
    """Why there can be no rates for the last layer, and what to do."""
    return (
        f"only={only!r} needs a last layer: an nn.Linear whose output is the logits and whose weights no "
        "other layer uses. Pass its name as head= of Rates.zeros, let logits= return its output, or adapt "
        "other modules: only='stats', only='prior', or everything"
    )


def head_of(model: nn.Module, head: str | None, only: Only | None) -> str | None:
    """Name of the last layer: `head` if it is a linear layer, by default the last one in the network.

    Raise a RatesError if there is none and `only` needs it.

    >>> head_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Flatten()), None, "head")
    '2'
    """
    names = [last.name for last in linear_layers(uncompiled(model))]
    if head is not None and head not in names:
        raise RatesError(f"head={head!r} is not a linear layer with its own weights; there are {names}")
    if head is None and not names and only in ("head", "forward"):
        raise RatesError(f"{type(model).__name__} has no suitable layer. {no_last_layer(only)}")
    return names[-1] if head is None and names else head


def selected(
    model: nn.Module, only: Only | None, prior: Sequence[float], head: str | None
) -> tuple[ModuleSpec, ...]:
    """The modules that get rates; `head` is the name of the last layer."""
    of_prior = (prior_spec(len(prior)),) if prior and only not in ("params", "stats") else ()
    chosen = tuple(
        spec
        for spec in describe(model)
        if not spec.frozen
        and (
            only is None
            or (spec.statistic and only in ("stats", "forward"))
            or (not spec.statistic and only == "params")
            or (in_layer(spec, head) and only in ("head", "forward"))
        )
    )
    if not chosen and not of_prior:
        selection = f" with only={only!r}" if only else ""
        reason = "every parameter is frozen and there are no running statistics"
        if only == "prior":
            reason = "pass prior=, soft counts of the source clients"
        raise RatesError(f"{type(model).__name__} has nothing to adapt{selection}: {reason}")
    return chosen + of_prior


def grouped(modules: Iterable[ModuleSpec], granularity: Granularity) -> dict[str, tuple[ModuleSpec, ...]]:
    """Modules that share a rate, by the name of the rate."""
    groups: dict[str, list[ModuleSpec]] = {}
    for spec in modules:
        name: str = getattr(spec, "name" if granularity == "tensor" else granularity)
        groups.setdefault(name, []).append(spec)
    return {name: tuple(specs) for name, specs in groups.items()}


def expected_cost(moving: Iterable[ModuleSpec], head: str | None) -> float:
    """Cost of personalising a batch if these modules move, in plain forward passes of the model.

    >>> [expected_cost(describe(nn.Linear(3, 2)), head) for head in ("", None)]
    [1.1, 4.0]
    """
    moving = tuple(moving)
    if not moving:
        return NOTHING
    if any(not spec.statistic and spec.name != LABEL_PRIOR and not in_layer(spec, head) for spec in moving):
        return COSTS[None]
    return COSTS["forward" if any(spec.statistic for spec in moving) else "head"]


def in_layer(spec: ModuleSpec, name: str | None) -> bool:
    """Whether a tensor belongs to the named layer; the whole network is the layer ''."""
    return spec.name != LABEL_PRIOR and not spec.statistic and spec.name.rpartition(".")[0] == name
