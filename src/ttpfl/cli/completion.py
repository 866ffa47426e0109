"""Names for shell completion, without the delay of importing torch.

Names of data sets and methods are read from the source code that registers them. A test compares all lists
with the registries.
"""

import re
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import ttpfl

_PACKAGE = Path(ttpfl.__file__).parent


def data_sets() -> list[str]:
    """All data sets of `ttpfl data list`.

    >>> "cifar10" in data_sets()
    True
    """
    return _registered("data/datasets", "@dataset(", r'^    name="([\w-]+)",$')


def methods() -> list[str]:
    """All test-time methods, including those of other packages.

    >>> "atp-online" in methods()
    True
    """
    plugins = [point.name for point in entry_points(group="ttpfl.methods")]
    return sorted({*_registered("methods", "@method(", r'^@method\("([\w-]+)"\)$'), *plugins})


def method_list(incomplete: str) -> list[str]:
    """The last of several comma-separated methods.

    >>> method_list("none,te")[-1]
    'none,tent'
    """
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in methods()]


def recipes() -> list[str]:
    """The bundled recipes.

    >>> "demo" in recipes()
    True
    """
    places = (_PACKAGE / "recipes", _PACKAGE.parents[1] / "recipes")  # installed, or in the repository
    return sorted(path.stem for place in places for path in place.glob("*.toml"))


def fixed(*names: str) -> Callable[[], list[str]]:
    """A completion with fixed names."""
    return lambda: list(names)


models = fixed("shallow_cnn", "resnet18", "resnet50", "signal_cnn", "beat_cnn", "mlp", "sequence_transformer")
modes = fixed("online", "batch")
orders = fixed(
    "iid", "recorded", "label-sorted", "mixed", "continual", "gradual", "mixed-clients", "recurring"
)
presets = fixed("paper", "cpu", "smoke")  # of all recipes
shifts = fixed("none", "feature", "label", "hybrid", "domain")


def _registered(folder: str, decorator: str, pattern: str) -> list[str]:
    """What the pattern matches in the files below a folder that use the decorator."""
    sources = (path.read_text("utf-8") for path in sorted((_PACKAGE / folder).rglob("*.py")))
    return sorted(
        name for text in sources if decorator in text for name in re.findall(pattern, text, re.MULTILINE)
    )
