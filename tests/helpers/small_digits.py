"""A few digits of every class and domain, so that populations over them are made in no time."""

from functools import cache
from typing import Any

import numpy as np

import ttpfl
from ttpfl.data import Images
from ttpfl.data.federate import Federated

CLIENTS = {"source_clients": 6, "target_clients": 4}


@cache
def few_digits(each: int = 12) -> Images:
    """So many of each class in each domain."""
    full = ttpfl.data.load("digits")
    kind = 10 * full.domain + full.y
    rows = np.concatenate([np.flatnonzero(kind == k)[:each] for k in range(40)])
    return Images(full.x[rows], full.y[rows], full.domain[rows], full.info)


def federated(**choices: Any) -> Federated:
    return ttpfl.data.federate(few_digits(), **{**CLIENTS, "ratio": 4.0, **choices})
