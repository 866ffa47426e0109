"""What can be asked of a population, and what is refused."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ttpfl.data import PopulationConfig
from ttpfl.data.partition import Dirichlet, Iid, Step
from ttpfl.data.population_config import SHIFTS, config_of
from ttpfl.errors import DataError

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("source_clients", 0, "source_clients must be a positive integer, got 0"),
        ("target_clients", -3, "target_clients must be a positive integer, got -3"),
        ("clients_per_domain", 2.0, "clients_per_domain must be a positive integer, got 2.0"),
        ("source_clients", True, "source_clients must be a positive integer, got True"),
        ("source_clients", None, "source_clients must be a positive integer, got None"),
        ("samples", 1, "samples must be an integer of at least 2, got 1"),
        ("samples", "200", "samples must be an integer of at least 2, got '200'"),
        ("seed", -1, "seed must be a non-negative integer, got -1"),
        ("seed", 1.5, "seed must be a non-negative integer, got 1.5"),
        ("seed", False, "seed must be a non-negative integer, got False"),
        ("majors", 0, "majors must be a positive integer, got 0"),
        ("majors", 2.0, "majors must be an integer, got 2.0"),
        ("ratio", 0, "ratio must be a number of at least 1, got 0.0"),
        ("ratio", -16.0, "ratio must be a number of at least 1, got -16.0"),
        ("ratio", NAN, "ratio must be a finite number, got nan"),
        ("ratio", "16", "ratio must be a finite number, got '16'"),
        ("alpha", NAN, "alpha must be a finite number, got nan"),
        ("alpha", INFINITE, "alpha must be a finite number, got inf"),
        ("quantity_skew", -0.1, "quantity_skew must be a number of at least 0 and below 10, got -0.1"),
        ("validation", 0, "validation must be a number above 0 and below 1, got 0"),
        ("validation", 1, "validation must be a number above 0 and below 1, got 1"),
        ("replacement", "no", "replacement must be true or false, got 'no'"),
        ("in_distribution", 1, "in_distribution must be true or false, got 1"),
        ("shift", "labels", "unknown shift 'labels'; did you mean 'label'\\? Available: none, feature"),
        ("shift", None, "shift must be a string, got None"),
        ("partition", "step-wise", "unknown partition 'step-wise'.* Available: step, dirichlet"),
        ("partition", "", "unknown partition ''"),
        ("partition", "Dirichlet", "did you mean 'dirichlet'"),
        ("held_out", "uci", "held_out is 'uci', but the shift is hybrid: use shift='domain'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PopulationConfig(**{name: value})


def test_alpha_matters_only_where_it_is_used() -> None:
    assert PopulationConfig(alpha=-1).partition_rule == Step()
    with pytest.raises(DataError, match="alpha must be a positive number, got -1"):
        PopulationConfig(alpha=-1, partition="dirichlet")


def test_numbers_of_numpy_and_paths_become_plain() -> None:
    """Else the same setting would have another name in the cache, or none at all."""
    odd = PopulationConfig(
        source_clients=np.int32(5),
        samples=np.int64(40),
        ratio=np.float32(16),
        alpha=1,
        replacement=np.bool_(True),
        seed=np.uint64(7),
        frost_textures=Path("frost"),  # type: ignore[arg-type]
    )
    plain = PopulationConfig(
        source_clients=5, samples=40, alpha=1.0, replacement=True, seed=7, frost_textures="frost"
    )
    assert odd == plain
    assert json.dumps(asdict(odd)) == json.dumps(asdict(plain))


def test_partition_follows_the_shift_unless_named() -> None:
    rules = {shift: type(PopulationConfig(shift=shift).partition_rule) for shift in SHIFTS}
    assert rules == {"none": Iid, "feature": Iid, "label": Step, "hybrid": Step, "domain": Step}
    assert PopulationConfig(shift="none", partition="dirichlet", alpha=0.1).partition_rule == Dirichlet(0.1)


def test_choices_stand_over_defaults() -> None:
    assert config_of({"ratio": 51.0, "seed": 1}, {"seed": 2}) == PopulationConfig(ratio=51.0, seed=2)
    with pytest.raises(
        DataError, match="unknown population option 'source_client'; did you mean 'source_clients'"
    ):
        config_of({}, {"source_client": 2})
