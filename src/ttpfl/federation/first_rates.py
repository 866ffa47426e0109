"""The rates that learning starts from."""

from typing import cast

from torch import nn

from ttpfl.core.rates import Rates
from ttpfl.core.selection import Only
from ttpfl.errors import FederationError
from ttpfl.federation.settings import LearnSettings


def first_rates(
    model: nn.Module,
    settings: LearnSettings,
    rates: Rates | None,
    classes: int | None,
    head: str | None = None,
) -> Rates:
    """The rates to start from, checked against the settings and the model.

    Zeros by default: a search moves variances in the log domain, where the loss has no cliffs, and the label
    prior, if the number of classes is known. `head` is the name of the last layer, if known.
    """
    if rates is None:
        chosen = None if settings.selection == "all" else cast(Only, settings.selection)
        prior = [0.0] * classes if settings.learns_prior and classes else []
        return Rates.zeros(model, "tensor", chosen, "log" if settings.searches else "linear", prior, head)
    only = settings.only if settings.budget is None else settings.selection
    if only not in (None, rates.only or "all"):
        asked = "only is" if settings.budget is None else f"budget={settings.budget:g} means"
        raise FederationError(
            f"{asked} {only!r}, but the initial rates are for {rates.only or 'all'!r}: leave out either"
        )
    rates.checked().check_fits(model)
    # Zeros mean the same in both domains.
    return rates if rates.values.any() or not settings.searches else rates.in_log_domain()
