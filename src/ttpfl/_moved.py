"""Aliases for names of version 0.1, to be removed in 0.3."""

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "account": "core.privacy_record",
    "direction": "core.direction",
    "health": "core.health",
    "inputs": "core.inputs",
    "learning": "core.learning",
    "network": "core.network",
    "norms": "core.direction_norms",
    "outputs": "core.outputs",
    "personalizer": "core.personalizer",
    "rate_rounds": "federation.learn_rates",
    "rates": "core.rates",
    "settings_kit": "util.settings_kit",
    "statistics": "core.statistics",
    "toy": "experiment.toy",
    "twin": "core.twin",
    "data.setting": "data.population_config",
    "experiment.workshop": "experiment.context",
    "federation.accountant": "federation.privacy.accountant",
    "federation.callbacks": "federation.checkpoints.callbacks",
    "federation.composition": "federation.privacy.composition",
    "federation.progress": "federation.checkpoints.progress",
    "federation.rate_average": "federation.server.rate_average",
    "federation.state": "federation.common.state",
}
"""Modules in the documentation of 0.1, and where they are now, without the name of the package."""


class _Alias(Loader):
    """Makes the old name an alias of the moved module."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it


class _MovedFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package != "ttpfl" or module not in MOVED:
            return None
        new = f"ttpfl.{MOVED[module]}"
        warnings.warn(f"{fullname} has moved to {new}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(fullname, _Alias(new))


def redirect_old_imports() -> None:
    """Let the import system find modules by their old names."""
    sys.meta_path.append(_MovedFinder())  # last, so that it only sees modules that do not exist


RENAMED = {
    "core.direction": {"DirectionCache": "ttpfl.DirectionCache"},
    "core.health": {"Figures": "HealthFigures"},
    "core.rates": {"average_rates": "ttpfl.average_rates"},
    "data": {
        "Answers": "TargetLabels",
        "Facts": "DatasetInfo",
        "Setting": "PopulationConfig",
        "facts": "dataset_info",
    },
    "data.clients": {"Answers": "TargetLabels"},
    "data.images": {"Facts": "DatasetInfo"},
    "data.population_config": {"Setting": "PopulationConfig"},
    "data.registry": {"facts": "dataset_info"},
    "experiment.context": {"Workshop": "ExperimentContext"},
    "methods": {"Knowledge": "SourceInfo", "Personal": "Adapter"},
    "methods.base": {"Knowledge": "SourceInfo", "Personal": "Adapter"},
}
"""Names in these modules, and what they are now; with a package if they have moved there."""


def renamed(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module with renamed names: the old ones work, with a DeprecationWarning.

    >>> with warnings.catch_warnings(action="ignore"):
    ...     renamed("ttpfl.methods")("Personal").__name__
    'Adapter'
    """
    new_names = RENAMED[module.partition(".")[2]]

    def get(name: str) -> Any:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = new_names[name].rpartition(".")
        warnings.warn(f"{module}.{name} is now {home or module}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(home or module), new)

    return get
