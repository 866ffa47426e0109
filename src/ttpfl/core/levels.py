"""Three nested levels of modules, by what it costs to personalise a batch with them.

Costs are in plain forward passes of the model, where a backward pass counts as two.
"""

from typing import Literal

from ttpfl.util.settings_kit import number

Level = Literal["head", "forward"]

COSTS: dict[Level | None, float] = {"head": 1.1, "forward": 2.0, None: 4.0}
"""Cost of each level; None is everything.

"head" moves the last layer and the label prior: the features before it are computed once. "forward" moves
running statistics as well: a second pass, but no backward pass.
"""
NOTHING = 1.0
"""Cost of rates that are all zero."""

LEAST = COSTS["head"]
BUDGET = number(f"of at least {LEAST}, in forward passes", lambda budget: budget >= LEAST)


def level_within(budget: float) -> Level | None:
    """The largest level that costs no more than `budget`; None is everything.

    Since learning drops what source clients do not agree on, more modules are not worse.

    >>> [level_within(budget) for budget in (1.1, 1.9, 2, 3, 4, 100)]
    ['head', 'head', 'forward', 'forward', None, None]
    """
    return max((level for level, cost in COSTS.items() if cost <= budget), key=COSTS.__getitem__)
