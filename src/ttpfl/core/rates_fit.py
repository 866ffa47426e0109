"""Whether rates are valid and fit a model."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ttpfl.core.inputs import all_finite, first_bad
from ttpfl.core.label_prior import LABEL_PRIOR
from ttpfl.core.network import ModuleSpec, describe, fingerprint
from ttpfl.errors import RatesError


def check_values(values: Any, names: Sequence[str]) -> None:
    """Raise a RatesError unless `values` are finite and one per rate."""
    if not isinstance(values, Tensor) or not values.is_floating_point():
        kind = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise RatesError(f"values must be a tensor of floating-point numbers, not {kind}")
    shape = tuple(values.shape)
    if shape != (len(names),):
        raise RatesError(f"values have shape {shape}, but there are {len(names)} rates")
    if not all_finite(values):
        index = first_bad(values)
        raise RatesError(
            f"the rate of {names[index]!r} is {values[index].item()}: rates must be finite; "
            "if they were just learned by SGD, lower lr"
        )


def check_fits(modules: Sequence[ModuleSpec], expected: str, model: nn.Module) -> None:
    """Raise a RatesError that names the first difference if `model` has another architecture.

    Args:
        modules: the modules with a rate.
        expected: fingerprint of the architecture.
        model: the model.
    """
    model_specs = {spec.name: spec for spec in describe(model)}
    for spec in modules:
        if spec.name == LABEL_PRIOR:  # no tensor of the model
            continue
        other = model_specs.get(spec.name)
        if other is not None and other.statistic != spec.statistic:
            raise RatesError(f"{spec.name!r} is a running statistic in only one of rates and model")
        if other is None or other.shape != spec.shape:
            difference = "no such module" if other is None else f"shape {other.shape}"
            raise RatesError(
                f"these rates are for another architecture: module {spec.name!r} has shape {spec.shape} "
                f"in the rates, and the model has {difference}. Learn rates for this model, or build "
                "the model they were learned for"
            )
    if fingerprint(model, model_specs.values()) != expected:
        with_rates = {spec.name for spec in modules}
        extra = next((spec for spec in model_specs.values() if spec.name not in with_rates), None)
        hint = f" (the model has {extra.name!r} of shape {extra.shape})" if extra else ""
        raise RatesError(
            "these rates are for another architecture: the modules with rates match, but other tensors "
            f"or the normalisation layers differ{hint}"
        )


def check_prior(modules: Sequence[ModuleSpec], prior: Sequence[float]) -> None:
    """Raise a RatesError unless every class of the label prior has a soft count."""
    classes = sum(spec.size for spec in modules if spec.name == LABEL_PRIOR)
    if len(prior) != classes or not all(0 <= part < math.inf for part in prior):
        raise RatesError(f"the label prior has {classes} classes, and the soft counts {prior}")
