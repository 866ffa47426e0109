"""Names of version 0.1 keep working, with a DeprecationWarning at the caller."""

import importlib
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ttpfl._moved import MOVED, RENAMED
from ttpfl.data.manifest import Manifest
from ttpfl.federation import LearnSettings
from ttpfl.methods import make

# Listed in the reference of version 0.1.
DOCUMENTED = [
    "ttpfl.account.Account",
    "ttpfl.account.PrivateRun",
    "ttpfl.data.images.Facts",
    "ttpfl.data.registry.facts",
    "ttpfl.data.setting.Setting",
    "ttpfl.federation.callbacks.Callback",
    "ttpfl.federation.composition.epsilon_of_rates",
    "ttpfl.federation.progress.Rounds",
    "ttpfl.federation.rate_average.average_rates",
    "ttpfl.federation.state.RunState",
    "ttpfl.health.Figures",
    "ttpfl.health.Health",
    "ttpfl.learning.refine_rates",
    "ttpfl.norms.direction_norms",
    "ttpfl.rate_rounds.learn_rates",
    "ttpfl.rates.average_rates",
    "ttpfl.settings_kit.check_fields",
    "ttpfl.statistics.statistics_rule",
    "ttpfl.toy.toy",
    "ttpfl.methods.base.Personal",
    "ttpfl.methods.Knowledge",
    "ttpfl.experiment.workshop.Workshop",
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_name(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    sys.modules.pop(module if module.removeprefix("ttpfl.") in MOVED else "", None)
    with pytest.warns(DeprecationWarning, match=r" (has moved to|is now) ttpfl\."):
        assert getattr(importlib.import_module(module), attribute) is not None


def test_old_and_new_module_are_the_same() -> None:
    for old, new in MOVED.items():
        sys.modules.pop(f"ttpfl.{old}", None)
        with pytest.warns(DeprecationWarning, match="has moved to"):
            moved = importlib.import_module(f"ttpfl.{old}")
        assert moved is importlib.import_module(f"ttpfl.{new}")
        assert moved.__spec__ is not None
        assert moved.__spec__.name == f"ttpfl.{new}"


@pytest.mark.parametrize("module", RENAMED)
def test_names_that_never_existed_are_still_errors(module: str) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = importlib.import_module(f"ttpfl.{module}").nothing


def test_a_method_with_the_old_names() -> None:
    with pytest.warns(DeprecationWarning, match="is now") as caught:  # noqa: PT031
        from ttpfl.methods import Knowledge, Method, Personal

        class Doubled(Personal):
            def adapt(self, batch: Any) -> Tensor:
                return 2 * self.plain(batch)

            def reset(self) -> None:
                pass

        @dataclass(frozen=True)
        class Old(Method):
            remembers = False

            def personal(self, model: nn.Module, knowledge: Any) -> Personal:
                return Doubled(model)

        @dataclass(frozen=True)
        class Younger(Old):
            def personal(self, model: nn.Module, knowledge: Any) -> Personal:
                return super().personal(model, knowledge)

    assert {warning.filename for warning in caught} == {__file__}
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    for method in (Old(), Younger()):
        assert not method.stateful
        torch.testing.assert_close(method.adapter(model, Knowledge())(x), 2 * model(x))
    built_in: Any = make("none")
    torch.testing.assert_close(built_in.personal(model, Knowledge())(x), model(x))


def test_old_names_of_settings() -> None:
    with pytest.warns(DeprecationWarning, match="epochs is now local_epochs"):
        assert LearnSettings(local_epochs=3).epochs == 3
    with pytest.raises(AttributeError, match="no attribute 'patients'"):
        _ = LearnSettings().patients


def test_old_name_of_a_manifests_config() -> None:
    manifest = Manifest({"shift": "label"}, {}, [], [], {})
    with pytest.warns(DeprecationWarning, match="setting is now config"):
        assert manifest.setting is manifest.config
