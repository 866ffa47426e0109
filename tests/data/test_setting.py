"""What can be asked of a population, and what is refused."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ttpfl.data import Setting
from ttpfl.data.partition import Dirichlet, Iid, Step
from ttpfl.data.setting import SHIFTS, setting_of
from ttpfl.errors import DataError

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("source_clients", 0, "source_clients is 0: it must be a whole number from 1"),
        ("target_clients", -3, "target_clients is -3: it must be a whole number from 1"),
        ("clients_per_domain", 2.0, "clients_per_domain is 2.0: it must be a whole number"),
        ("source_clients", True, "source_clients is True: it must be a whole number"),
        ("source_clients", None, "source_clients is None: it must be a whole number"),
        ("samples", 1, "samples is 1: it must be a whole number from 2"),
        ("samples", "200", "samples is '200': it must be a whole number"),
        ("seed", -1, "seed is -1: it must be a whole number from 0"),
        ("seed", 1.5, "seed is 1.5: it must be a whole number"),
        ("seed", False, "seed is False: it must be a whole number"),
        ("majors", 0, "majors is 0: a client has at least one major class"),
        ("majors", 2.0, "majors is 2.0: it must be a whole number"),
        ("ratio", 0, "ratio is 0.0: it must be a number from 1"),
        ("ratio", -16.0, "ratio is -16.0: it must be a number from 1"),
        ("ratio", NAN, "ratio is nan: it must be a finite number"),
        ("ratio", "16", "ratio is '16': it must be a finite number"),
        ("alpha", NAN, "alpha is nan: it must be a finite number"),
        ("alpha", INFINITE, "alpha is inf: it must be a finite number"),
        ("quantity_skew", -0.1, "quantity_skew is -0.1: it must lie between 0 and 10"),
        ("validation", 0, "validation is 0.0: it must lie between 0 and 1"),
        ("validation", 1, "validation is 1.0: it must lie between 0 and 1"),
        ("replacement", "no", "replacement is 'no': it must be True or False"),
        ("in_distribution", 1, "in_distribution is 1: it must be True or False"),
        ("shift", "labels", "there is no shift 'labels'; did you mean 'label'\\? Known: none, feature"),
        ("shift", None, "shift is None: it must be a text"),
        ("partition", "step-wise", "there is no partition 'step-wise'.* Known: step, dirichlet"),
        ("partition", "", "there is no partition ''"),
        ("partition", "Dirichlet", "did you mean 'dirichlet'"),
        ("held_out", "uci", "held_out is 'uci', but the shift is hybrid: use shift='domain'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Setting(**{name: value})


def test_alpha_matters_only_where_it_is_used() -> None:
    assert Setting(alpha=-1).partition_rule == Step()
    with pytest.raises(DataError, match="alpha is -1"):
        Setting(alpha=-1, partition="dirichlet")


def test_numbers_of_numpy_and_paths_become_plain() -> None:
    """Else the same setting would have another name in the cache, or none at all."""
    odd = Setting(
        source_clients=np.int32(5),
        samples=np.int64(40),
        ratio=np.float32(16),
        alpha=1,
        replacement=np.bool_(True),
        seed=np.uint64(7),
        frost_textures=Path("frost"),  # type: ignore[arg-type]
    )
    plain = Setting(source_clients=5, samples=40, alpha=1.0, replacement=True, seed=7, frost_textures="frost")
    assert odd == plain
    assert json.dumps(asdict(odd)) == json.dumps(asdict(plain))


def test_partition_follows_the_shift_unless_named() -> None:
    rules = {shift: type(Setting(shift=shift).partition_rule) for shift in SHIFTS}
    assert rules == {"none": Iid, "feature": Iid, "label": Step, "hybrid": Step, "domain": Step}
    assert Setting(shift="none", partition="dirichlet", alpha=0.1).partition_rule == Dirichlet(0.1)


def test_choices_stand_over_defaults() -> None:
    assert setting_of({"ratio": 51.0, "seed": 1}, {"seed": 2}) == Setting(ratio=51.0, seed=2)
    with pytest.raises(DataError, match="there is no choice 'source_client'; did you mean 'source_clients'"):
        setting_of({}, {"source_client": 2})
