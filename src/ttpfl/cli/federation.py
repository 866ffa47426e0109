"""`ttpfl train` and `ttpfl learn`: train a model on source clients, then learn its adaptation rates."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable_command
from ttpfl.cli.foreign import trained_model
from ttpfl.cli.help_pages import AGGREGATION, ALGORITHM, CHECKS, PRIVACY, SITES
from ttpfl.cli.messages import say
from ttpfl.cli.option_groups import with_groups
from ttpfl.cli.options import (
    Arch,
    ClientOptions,
    DataDir,
    ModelFile,
    NameOrNone,
    RunOptions,
    file_option,
    flag,
    option,
)
from ttpfl.cli.outcome import report
from ttpfl.cli.sites import SiteOptions, TrainSiteOptions, learn_over_sites, train_over_sites
from ttpfl.federation.settings import LearnSettings, TrainSettings

if TYPE_CHECKING:
    from ttpfl.data.federate import Federated
    from ttpfl.federation.checkpoints.callbacks import Callback
    from ttpfl.federation.checkpoints.progress import Advance

SITE_NAMES = "engine federation deadline longest classes image_size input_shape"
CHECK_NAMES = "eval_every patience check checkpoint_every keep tensorboard"


@with_groups(
    {
        "Options": "out model weights resume json help_more",
        "Clients": "shift held_out set_ option data_dir",
        "Training": "rounds cohort algorithm local_epochs batch_size lr momentum weight_decay seed workers",
        ALGORITHM: "mu q shuffle buffers min_reply_fraction fast",
        CHECKS: f"validate_every {CHECK_NAMES} allow_divergence",
        SITES: SITE_NAMES,
    }
)
def train(
    run: RunOptions,
    clients: ClientOptions,
    sites: TrainSiteOptions,
    settings: TrainSettings,
    name: NameOrNone = None,
    model: Annotated[
        str,
        option(
            "Network: shallow_cnn, resnet18, resnet50, signal_cnn, beat_cnn, mlp, sequence_transformer or "
            "package.module:function.",
            complete=completion.models,
        ),
    ] = "shallow_cnn",
    weights: Annotated[Path | None, file_option("Weights file to start from.")] = None,
    allow_divergence: Annotated[
        bool,
        flag("--allow-divergence", "Exit with 0 even if training diverged. The model is always written."),
    ] = False,
) -> None:
    """Train a global model over source clients or real sites."""
    if sites.chosen(**vars(clients)):
        if name is not None:
            raise typer.BadParameter(f"--engine flower takes no data set, but {name} is given")
        build = sites.network(model)
        train_over_sites(_initial(build, weights, settings.seed), build, sites, run, settings)
        return
    if name is None:
        raise typer.BadParameter("name the data set: `ttpfl data list` shows all")
    with _divergence_is_an_error(not allow_divergence, run.out / "model.safetensors"):
        _train_here(clients.description(name, settings.seed), clients.data_dir, model, weights, run, settings)


def _train_here(
    data: dict[str, Any],
    data_dir: Path | None,
    model: str,
    weights: Path | None,
    run: RunOptions,
    settings: TrainSettings,
) -> None:
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.evaluation import Evaluator
    from ttpfl.federation import train
    from ttpfl.models import Signature
    from ttpfl.models.build import arguments_for

    building, training = numbered("building clients", "training the model")
    clients = _clients(data, data_dir, run.out, building)
    info = clients.population.info
    build = arguments_for(model, len(info.classes), info.image_size, info.shape)
    initial = _initial(build, weights, settings.seed)
    if info.shape:
        Signature.of(info).check_fits(deepcopy(initial).eval())
    with resumable_command(), progress(training, "round") as advance:
        trained = train(
            initial,
            clients.population.source,
            settings,
            run_dir=run.out,
            resume=run.resume,
            callbacks=_callbacks(advance, run.tensorboard),
            evaluate=Evaluator(clients.population.target, clients.target_labels).of_model,
            card={
                "build": build,
                "data": data,
                "population": clients.manifest.digest,
                "signature": asdict(Signature.of(info)),
            },
        )
    report(run.out / "model.safetensors", trained.history, run.json)


@with_groups(
    {
        "Options": "out rates arch data_dir resume json help_more",
        "Learning": "optimizer rounds cohort batch_size lr mode only budget prior guard seed workers",
        AGGREGATION: "local_epochs average trim min_reply_fraction",
        PRIVACY: "privacy clip noise delta",
        CHECKS: f"{CHECK_NAMES} direction_cache",
        SITES: SITE_NAMES,
    }
)
def learn(
    model_file: ModelFile,
    run: RunOptions,
    sites: SiteOptions,
    settings: LearnSettings,
    rates: Annotated[Path | None, file_option("Rates file to start from. Its privacy cost counts.")] = None,
    arch: Arch = None,
    data_dir: DataDir = None,
) -> None:
    """Learn rates: how far each tensor of a trained model should adapt.

    Rates are learned on the validation data of source clients or real sites.
    """
    if sites.chosen(data_dir=data_dir):
        learn_over_sites(model_file, arch, rates, sites, run, settings)
        return
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.core.rates import Rates
    from ttpfl.evaluation import Evaluator
    from ttpfl.federation import learn

    model, card = trained_model(model_file, arch)
    building, learning = numbered("building clients", "learning rates")
    clients = clients_of(card, model_file, data_dir, run.out, building)
    evaluator = Evaluator(clients.population.target, clients.target_labels, settings.batch_size)
    with resumable_command(), progress(learning, "round") as advance:
        learned = learn(
            model,
            clients.population.source,
            settings,
            rates=None if rates is None else Rates.load(rates, model=model),
            run_dir=run.out,
            resume=run.resume,
            callbacks=_callbacks(advance, run.tensorboard),
            evaluate=lambda current: evaluator.of_rates(model, current),
        )
    report(run.out / "rates.safetensors", learned.history, run.json, learned.rates.learned)


def clients_of(
    card: dict[str, Any], path: Path, data_dir: Path | None, out: Path | None, title: str
) -> "Federated":
    """Rebuild the population that a model was trained on, and verify it.

    Args:
        card: Card of the model file.
        path: The model file, for errors.
        data_dir: The data directory.
        out: Folder for the manifest; None writes none.
        title: Title of the progress display.
    """
    from ttpfl.errors import DataError, ModelError

    if "data" not in card:
        raise ModelError(f"{path} does not name the data it was trained on: use ttpfl from Python")
    clients = _clients(card["data"], data_dir, out, title)
    if clients.manifest.digest != card["population"]:
        raise DataError(f"the data differs from what {path} was trained on: see the manifest next to it")
    return clients


def _clients(data: dict[str, Any], data_dir: Path | None, out: Path | None, title: str) -> "Federated":
    from ttpfl.cli.progress import progress
    from ttpfl.data.federate import federate

    with progress(title, "client") as advance:
        return federate(
            data["name"],
            data_dir=data_dir,
            options=data["options"],
            manifest=None if out is None else out / "manifest.json",
            prepare=True,
            progress=advance,
            **data["choices"],
        )


def _initial(build: dict[str, Any], weights: Path | None, seed: int) -> Any:
    """The network, initialised by the seed or with the weights of a file."""
    from ttpfl.models import build as build_model
    from ttpfl.models.weights import load_backbone
    from ttpfl.util.randomness import seeded

    with seeded(seed):
        return load_backbone(build_model(**build), weights)


def _callbacks(advance: "Advance", tensorboard: Path | None) -> "list[Callback]":
    from ttpfl.federation.checkpoints.progress import Rounds, Sent, TensorBoard

    log = [] if tensorboard is None else [TensorBoard(str(tensorboard))]
    return [Rounds(advance), Sent(say), *log]


@contextmanager
def _divergence_is_an_error(strict: bool, path: Path) -> Iterator[None]:
    """Turn the divergence warning, which comes once the model is written, into an error."""
    from ttpfl.errors import DivergenceWarning

    try:
        with warnings.catch_warnings():
            if strict:
                warnings.simplefilter("error", DivergenceWarning)
            yield
    except DivergenceWarning as divergence:
        divergence.add_note(f"{path} is written; with --allow-divergence this is only a warning")
        raise
