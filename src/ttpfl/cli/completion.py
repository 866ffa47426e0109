"""Names that the shell completes. A key press must not wait for torch, which the registries import.

Names of data sets and methods are therefore read where they are registered, in the source; a test compares
them with the registries, and the fixed lists with what they stand for.
"""

import re
from importlib.metadata import entry_points
from pathlib import Path

import ttpfl

MODELS = ["shallow_cnn", "resnet18", "resnet50"]
ORDERS = ["iid", "recorded", "label-sorted", "mixed"]
PRESETS = ["paper", "cpu", "smoke"]
SHIFTS = ["none", "feature", "label", "hybrid", "domain"]


def data_sets() -> list[str]:
    """All data sets that `ttpfl data list` shows.

    >>> "cifar10" in data_sets()
    True
    """
    return _registered("data/datasets", "@dataset(", r'^    name="([\w-]+)",$')


def methods() -> list[str]:
    """All test-time methods, with those of other packages.

    >>> "atp-online" in methods()
    True
    """
    others = [point.name for point in entry_points(group="ttpfl.methods")]
    return sorted({*_registered("methods", "@method(", r'^@method\("([\w-]+)"\)$'), *others})


def method_list(incomplete: str) -> list[str]:
    """The last of several methods with commas between them.

    >>> method_list("none,te")[-1]
    'none,tent'
    """
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in methods()]


def models() -> list[str]:
    """Networks that come along."""
    return MODELS


def orders() -> list[str]:
    """Orders of a client's images."""
    return ORDERS


def recipes() -> list[str]:
    """Recipes that come along.

    >>> "demo" in recipes()
    True
    """
    package = Path(ttpfl.__file__).parent
    places = (package / "recipes", package.parents[1] / "recipes")  # installed, or in the repository
    return sorted(path.stem for place in places for path in place.glob("*.toml"))


def presets() -> list[str]:
    """Presets that recipes have; which one it is of, is not known when an option is completed."""
    return PRESETS


def shifts() -> list[str]:
    """Kinds of shift."""
    return SHIFTS


def _registered(folder: str, decorator: str, pattern: str) -> list[str]:
    """What the pattern finds in those files of a folder that register something."""
    paths = sorted((Path(ttpfl.__file__).parent / folder).glob("*.py"))
    sources = (path.read_text("utf-8") for path in paths)
    return sorted(
        name for text in sources if decorator in text for name in re.findall(pattern, text, re.MULTILINE)
    )
