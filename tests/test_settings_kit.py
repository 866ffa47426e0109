"""One form for every error about a setting: the name, what it must be, the value, and the nearest name."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
import pytest

from ttpfl.errors import DataError
from ttpfl.util import settings_kit as kit

HUGE = 10**400  # no float is as large


class Row(TypedDict):
    label: str
    figures: list[float | None]
    note: NotRequired[str]


@dataclass(frozen=True)
class Choices:
    lr: float = field(default=0.1, metadata={"limit": kit.POSITIVE})
    cohort: int | None = field(default=None, metadata={"limit": kit.integer(1)})
    free: Any = None


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (kit.INTEGER, [-3, 0, HUGE, np.int64(2)], [True, 1.0, "1", None, np.float64(1)]),
        (kit.integer(1), [1, np.uint8(1)], [0, -1, True, math.nan]),
        (kit.integer(1, 5), [1, 5], [0, 6]),
        (kit.NUMBER, [0, -2.5, np.float32(1), Fraction(1, 2)], [math.inf, math.nan, True, "1", None, HUGE]),
        (kit.POSITIVE, [5e-324, 1], [0, -1, math.inf, math.nan]),
        (kit.NOT_NEGATIVE, [0, 1.5], [-5e-324, math.inf]),
        (kit.FRACTION, [0, 0.5, 1], [-0.1, 1.1, math.nan]),
        (kit.PROBABILITY, [0.5], [0, 1, math.nan]),
        (kit.BOOLEAN, [True, False], [0, 1, "true", None]),
        (kit.one_of("a", "b", None), ["a", None], ["c", ["a"], 0]),
    ],
    ids=lambda value: value.words if isinstance(value, kit.Rule) else "",
)
def test_rules(rule: kit.Rule, good: list[Any], bad: list[Any]) -> None:
    rule.check(DataError, **{f"good{number}": value for number, value in enumerate(good)})
    for value in bad:
        with pytest.raises(DataError) as caught:
            rule.check(DataError, fine=good[0], wrong=value)
        assert str(caught.value).startswith(f"wrong must be {rule.words}, got {value!r:.20}")


def test_long_values_are_cut() -> None:
    with pytest.raises(DataError) as caught:
        kit.BOOLEAN.check(DataError, flag="x" * 1000)
    assert len(str(caught.value)) < 120


def test_fields_are_checked_by_their_limits_and_none_only_where_it_is_the_default() -> None:
    kit.check_fields(Choices(lr=1, cohort=3, free=object()), DataError)
    kit.check_fields(Choices(), DataError)
    with pytest.raises(DataError, match="cohort must be a positive integer, got 0"):
        kit.check_fields(Choices(cohort=0), DataError)
    with pytest.raises(DataError, match="lr must be a positive number, got None"):
        kit.check_fields(Choices(lr=None), DataError)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, float, 3.0),
        (np.float32(2), float, 2.0),
        (np.int64(3), int, 3),
        (None, int | None, None),
        (2, Annotated[int, kit.integer(1)] | None, 2),
        ([1, 2], int | list[int], [1, 2]),
        ({"a": {"b": 1}}, dict[str, dict[str, Any]], {"a": {"b": 1}}),
        (
            {"label": "x", "figures": [1, None], "more": 1},
            Row,
            {"label": "x", "figures": [1, None], "more": 1},
        ),
    ],
)
def test_values_of_a_type_are_returned_as_pythons_own(value: Any, annotation: Any, expected: Any) -> None:
    found = kit.as_type("it", value, annotation, DataError)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (True, int, "it must be an integer, got True"),
        (None, int, "it must be an integer, got None"),
        (HUGE, float, "it must be a finite number, got 1000"),
        (0, Annotated[int, kit.integer(1)] | None, "it must be a positive integer, got 0"),
        ("3", int | list[int], "it must be an integer or a list, got '3'"),
        ([1, 2.5], int | list[int], "it[1] must be an integer, got 2.5"),
        ({"a": 1}, dict[str, str], "it.a must be a string, got 1"),
        ([], Row, "it must be a table of keys and values, got []"),
        ({"figures": []}, Row, "it has no 'label'"),
        ({"label": "x", "figures": [1, "2"]}, Row, "it.figures[1] must be a finite number, got '2'"),
        ({"label": "x", "figures": [], "note": 1}, Row, "it.note must be a string, got 1"),
    ],
)
def test_values_of_another_type_are_named_with_their_place(value: Any, annotation: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        kit.as_type("it", value, annotation, DataError)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Motion-Blur", "; did you mean 'motion_blur'? "),
        ("gausian_noise", "; did you mean 'gaussian_noise'? "),
        ("xyz", ". "),
        (["snow"], "; did you mean 'snow'? "),
    ],
)
def test_the_nearest_name_is_suggested_whatever_its_case_and_hyphens(name: Any, hint: str) -> None:
    known = {"gaussian_noise": 1, "motion_blur": 2, "snow": 3}
    with pytest.raises(DataError) as caught:
        kit.find("corruption", name, known, DataError, "of the list")
    names = "gaussian_noise, motion_blur, snow"
    assert str(caught.value) == f"unknown corruption {name!r} of the list{hint}Available: {names}"
    assert kit.find("corruption", "snow", known, DataError) == 3


@pytest.mark.parametrize(
    ("text", "annotation", "expected"),
    [
        ("True", bool, True),
        ("-1", int, -1),
        (".5", float, 0.5),
        ("None", str | None, None),
        ("12", str, "12"),
    ],
)
def test_texts_become_values(text: str, annotation: Any, expected: Any) -> None:
    assert kit.from_text("key", text, annotation, DataError) == expected


def test_texts_that_cannot_become_values_are_named() -> None:
    with pytest.raises(DataError, match=r"^--set samples must be an integer or none, got '2\.5'$"):
        kit.from_text("--set samples", "2.5", int | None, DataError)
