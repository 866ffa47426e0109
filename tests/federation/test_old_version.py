"""Checkpoints of version 0.1.0 before modules got folders: runs go on with them, whatever has moved since.

`old_version/` holds the first round of two runs, written with `epochs=2` and the settings below. Their
identities name functions as `ttpfl.direction.entropy` and `ttpfl.learning.cross_entropy`.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typer.testing import CliRunner

from ttpfl.cli import app
from ttpfl.core.network import configuration
from ttpfl.errors import FederationError
from ttpfl.experiment.inputs import learning_inputs, training_inputs
from ttpfl.experiment.recipe import read as read_recipe
from ttpfl.federation import LearnSettings, TrainSettings, learn, train
from ttpfl.federation.checkpoints import checkpoint
from ttpfl.federation.checkpoints.identity import function_name
from ttpfl.federation.settings import with_new_names
from ttpfl.models import shallow_cnn

OLD = Path(__file__).parents[1] / "old_version" / "functions"
CHOSEN: dict[str, Any] = {"cohort": 2, "batch_size": 4, "workers": 0, "local_epochs": 2}


def model() -> nn.Module:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view(parameter.shape))
    return net


def clients() -> dict[str, tuple[Tensor, Tensor]]:
    y = torch.arange(8) % 3
    return {
        f"client-{number}": (torch.sin(torch.arange(32.0) + number).view(8, 4) + y[:, None], y)
        for number in range(3)
    }


def result(kind: str, rounds: int, **options: Any) -> Tensor:
    if kind == "learn":
        return learn(model(), clients(), LearnSettings(rounds=rounds, **CHOSEN), **options).rates.values
    trained = train(model(), clients(), TrainSettings(rounds=rounds, **CHOSEN), **options).model
    return nn.utils.parameters_to_vector(trained.parameters()).detach()


def old_run(kind: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD / kind, tmp_path / kind))


@pytest.mark.parametrize("kind", ["learn", "train"])
def test_an_old_run_goes_on(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Up to what another processor or version of torch makes of the first round."""
    run = old_run(kind, tmp_path)
    got = result(kind, 3, run_dir=run, resume=True)
    torch.testing.assert_close(got, result(kind, 3), rtol=1e-4, atol=1e-5)
    assert not [line for line in caplog.messages if "torch was" not in line]
    written = checkpoint.read(max((run / "checkpoints").iterdir()))[1]
    assert (written["local_epochs"], written["loss"]) == (2, "ttpfl.cross_entropy")


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"local_epochs": 3}, {}, "local_epochs was 2, now it is 3"),
        ({}, {"loss": F.cross_entropy}, "loss was 'ttpfl.cross_entropy', now it is 'torch.nn.functional"),
    ],
    ids=["setting", "function"],
)
def test_another_run_is_still_refused(
    changed: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    settings, run = LearnSettings(rounds=3, **CHOSEN | changed), old_run("learn", tmp_path)
    with pytest.raises(FederationError, match=message):
        learn(model(), clients(), settings, run_dir=run, resume=True, **options)


def test_functions_of_users_keep_their_modules() -> None:
    assert function_name(model) == f"{__name__}.model"


def test_networks_of_the_library_stay_where_they_are() -> None:
    """Where their classes are is part of `model_hash`, and so of every checkpoint."""
    assert configuration(shallow_cnn(10)).startswith(" ttpfl.models.shallow_cnn.ShallowCNN ")


@pytest.mark.parametrize("kind", [LearnSettings, TrainSettings])
def test_the_old_name_of_a_setting(kind: type[Any]) -> None:
    with pytest.warns(DeprecationWarning, match="epochs= is now local_epochs=") as caught:
        settings = kind(epochs=3)
    assert settings == kind(local_epochs=3)
    assert caught[0].filename == __file__
    with pytest.raises(FederationError, match="old name of local_epochs: use only local_epochs"):
        with_new_names({"epochs": 3, "local_epochs": 3})


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--local-epochs", "--local-epochs"),
        ("--epochs", "--local-epochs"),
        ("--minimum", "--min-reply-fraction"),
    ],
)
def test_the_old_flag_of_a_setting(flag: str, name: str, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["train", "digits", "--out", str(tmp_path), flag, "-1"])
    assert f"{name} must be" in refused.output
    assert flag == name or flag not in CliRunner().invoke(app, ["train", "--help-more"]).output.split()


def test_the_old_key_of_a_recipe(tmp_path: Path) -> None:
    """Also where stages are kept: the same hash as before."""
    path = tmp_path / "own.toml"
    path.write_text("""
        methods = ["none", "atp-batch"]
        learn.epochs = 2
        [cases.one.train]
        epochs = 3
        [cases.two.train]
        local_epochs = 4
    """)
    recipe = read_recipe(path)
    one, two = (recipe.config(case, 0) for case in ("one", "two"))
    assert (one.train.local_epochs, two.train.local_epochs, one.learn.local_epochs) == (3, 4, 2)
    assert training_inputs(one)["train"] == {"epochs": 3}
    assert learning_inputs(two)["learn"] == {"epochs": 2}
    changed = read_recipe("demo", changes=["train.epochs=5"])
    assert changed.config(changed.cases[0], 0).train.local_epochs == 5
