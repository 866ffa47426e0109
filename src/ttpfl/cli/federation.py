"""`ttpfl train` and `ttpfl learn`: a global model over source clients, then the rates of its modules."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.errors import resumable_command
from ttpfl.cli.foreign import trained_model
from ttpfl.cli.messages import say
from ttpfl.cli.options import Arch, DataDir, HeldOut, Json, NameOrNone, Options, Sets, Shift
from ttpfl.cli.outcome import report
from ttpfl.cli.settings import with_settings
from ttpfl.cli.values import merged, options
from ttpfl.federation.settings import LearnSettings, TrainSettings

if TYPE_CHECKING:
    from ttpfl.data.federate import Federated
    from ttpfl.federation.callbacks import Callback
    from ttpfl.federation.progress import Advance

Out = Annotated[Path, typer.Option(help="Run folder for checkpoints, history and result.", file_okay=False)]
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the newest checkpoint in --out.")]
Engine = Annotated[str, typer.Option(help="Where clients run: local (this machine) or flower (real sites).")]
Home = Annotated[
    Path | None,
    typer.Option(
        "--federation",
        help="flower: federation folder of `ttpfl flower init`.",
        file_okay=False,
        show_default=False,
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="flower: seconds to wait for the rest after half of the replies arrived (default 60).",
        show_default=False,
    ),
]
Longest = Annotated[
    float | None,
    typer.Option(
        min=1,
        help="flower: longest wait for replies in seconds (default 3600).",
        show_default=False,
    ),
]
Log = Annotated[
    Path | None, typer.Option(help="Folder for a TensorBoard log.", file_okay=False, show_default=False)
]


@with_settings(TrainSettings)
def train(
    out: Out,
    name: NameOrNone = None,
    model: Annotated[
        str,
        typer.Option(
            help="Network: shallow_cnn, resnet18, resnet50 or package.module:function.",
            autocompletion=completion.models,
        ),
    ] = "shallow_cnn",
    weights: Annotated[
        Path | None, typer.Option(help="Weights file to start from.", dir_okay=False, show_default=False)
    ] = None,
    shift: Shift = None,
    held_out: HeldOut = None,
    set_: Sets = None,
    option: Options = None,
    data_dir: DataDir = None,
    resume: Resume = False,
    allow_divergence: Annotated[
        bool,
        typer.Option(
            "--allow-divergence", help="Exit with 0 even if training diverged. The model is always written."
        ),
    ] = False,
    tensorboard: Log = None,
    json: Json = False,
    engine: Engine = "local",
    federation: Home = None,
    deadline: Deadline = None,
    longest: Longest = None,
    classes: Annotated[
        int | None, typer.Option(min=2, help="flower: number of classes.", show_default=False)
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="flower: image size in pixels.", show_default=False)
    ] = None,
    *,
    settings: TrainSettings,
) -> None:
    """Train a global model over source clients or real sites."""
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.evaluation import Evaluator
    from ttpfl.federation import train as run
    from ttpfl.models import Signature
    from ttpfl.models.build import arguments_for

    here = {
        "--shift": shift,
        "--held-out": held_out,
        "--set": set_,
        "--option": option,
        "--data-dir": data_dir,
    }
    over_sites = {
        "--federation": federation,
        "--classes": classes,
        "--image-size": image_size,
        "--deadline": deadline,
        "--longest": longest,
    }
    if _over_sites(engine, here, over_sites):
        from ttpfl.cli.sites import patience_of, train_over_sites

        build = {"name": model, "num_classes": classes, "image_size": image_size}
        if name is not None or classes is None or image_size is None:
            raise typer.BadParameter("with --engine flower give --classes and --image-size, and no data set")
        begin = _begin(build, weights, settings.seed)
        patience = patience_of(deadline, longest)
        home = _home(federation)
        train_over_sites(begin, build, home, out, settings, resume, patience, tensorboard, json)
        return
    if name is None:
        raise typer.BadParameter("name the data set: `ttpfl data list` shows all")
    choices = merged({"shift": shift, "held_out": held_out, "seed": settings.seed}, set_ or ())
    said = {"name": name, "options": options(option or ()), "choices": choices}
    building, training = numbered("building clients", "training the model")
    clients = _clients(said, data_dir, out, building)
    facts = clients.population.facts
    build = arguments_for(model, len(facts.classes), facts.image_size)
    strictly = _divergence_is_an_error(not allow_divergence, out / "model.safetensors")
    with resumable_command(), strictly, progress(training, "round") as advance:
        trained = run(
            _begin(build, weights, settings.seed),
            clients.population.source,
            settings,
            run_dir=out,
            resume=resume,
            callbacks=_callbacks(advance, tensorboard),
            evaluate=Evaluator(clients.population.target, clients.answers).of_model,
            card={
                "build": build,
                "data": said,
                "population": clients.manifest.digest,
                "signature": asdict(Signature.of(facts)),
            },
        )
    report(out / "model.safetensors", trained.history, json)


@with_settings(LearnSettings)
def learn(
    model_file: Annotated[
        Path,
        typer.Argument(help="Model file of `ttpfl train`.", dir_okay=False, show_default=False),
    ],
    out: Out,
    rates: Annotated[
        Path | None,
        typer.Option(
            help="Rates file to start from. Its privacy cost counts.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    arch: Arch = None,
    resume: Resume = False,
    tensorboard: Log = None,
    json: Json = False,
    engine: Engine = "local",
    federation: Home = None,
    deadline: Deadline = None,
    longest: Longest = None,
    *,
    settings: LearnSettings,
) -> None:
    """Learn one adaptation rate per module of a trained model.

    Rates are learned on the source clients' validation data; with --engine flower, on that of
    real sites.
    """
    here = {"--data-dir": data_dir}
    over_sites = {"--federation": federation, "--deadline": deadline, "--longest": longest}
    if _over_sites(engine, here, over_sites):
        from ttpfl.cli.sites import learn_over_sites, patience_of

        patience = patience_of(deadline, longest)
        home = _home(federation)
        learn_over_sites(model_file, arch, rates, home, out, settings, resume, patience, tensorboard, json)
        return
    from ttpfl.cli.progress import numbered, progress
    from ttpfl.evaluation import Evaluator
    from ttpfl.federation import learn as run
    from ttpfl.rates import Rates

    model, card = trained_model(model_file, arch)
    building, learning = numbered("building clients", "learning rates")
    clients = clients_of(card, model_file, data_dir, out, building)
    evaluator = Evaluator(clients.population.target, clients.answers, settings.batch_size)
    with resumable_command(), progress(learning, "round") as advance:
        learned = run(
            model,
            clients.population.source,
            settings,
            rates=None if rates is None else Rates.load(rates, model=model),
            run_dir=out,
            resume=resume,
            callbacks=_callbacks(advance, tensorboard),
            evaluate=lambda found: evaluator.of_rates(model, found),
        )
    report(out / "rates.safetensors", learned.history, json, learned.rates.learned)


@contextmanager
def _divergence_is_an_error(strict: bool, path: Path) -> Iterator[None]:
    """The warning comes once the model is written, so that nothing is lost."""
    from ttpfl.errors import DivergenceWarning

    try:
        with warnings.catch_warnings():
            if strict:
                warnings.simplefilter("error", DivergenceWarning)
            yield
    except DivergenceWarning as divergence:
        divergence.add_note(f"{path} is written; with --allow-divergence this is only a warning")
        raise


def _over_sites(engine: str, here: Mapping[str, object], over_sites: Mapping[str, object]) -> bool:
    """Whether clients are real sites; options that only the other engine has are errors, if given.

    Args:
        engine: as it was chosen.
        here: the options for clients on this machine.
        over_sites: those for real sites.
    """
    if engine not in ("local", "flower"):
        raise typer.BadParameter(f"--engine is {engine!r}: it must be local or flower")
    for name, value in (here if engine == "flower" else over_sites).items():
        if value is not None and value != []:
            other = "local" if engine == "flower" else "flower"
            raise typer.BadParameter(
                f"{name} goes with --engine {other}, and this is {engine}: leave it out, or choose {other}"
            )
    if engine == "flower":
        from ttpfl.flower.version import check_flower

        check_flower()
    return engine == "flower"


def _home(federation: Path | None) -> Path:
    if federation is None:
        raise typer.BadParameter("--engine flower needs --federation, the folder of `ttpfl flower init`")
    return federation


def _clients(said: dict[str, Any], data_dir: Path | None, out: Path | None, title: str) -> "Federated":
    from ttpfl.cli.progress import progress
    from ttpfl.data.federate import federate

    with progress(title, "client") as advance:
        return federate(
            said["name"],
            data_dir=data_dir,
            options=said["options"],
            manifest=None if out is None else out / "manifest.json",
            prepare=True,
            progress=advance,
            **said["choices"],
        )


def clients_of(
    card: dict[str, Any], path: Path, data_dir: Path | None, out: Path | None, title: str
) -> "Federated":
    """The population that a model was trained on, built again and compared; `out` gets its manifest.

    `title` is what whoever waits is told.
    """
    from ttpfl.errors import DataError, ModelError

    if "data" not in card:
        raise ModelError(f"{path} does not say which data it was trained on: use ttpfl from Python")
    clients = _clients(card["data"], data_dir, out, title)
    if clients.manifest.digest != card["population"]:
        raise DataError(f"the data is not that which {path} was trained on: see the manifest beside it")
    return clients


def _begin(build: dict[str, Any], weights: Path | None, seed: int) -> Any:
    """The network with fresh weights, which the seed decides, or with those of a file."""
    from ttpfl.models import build as build_model
    from ttpfl.models.weights import load_backbone
    from ttpfl.randomness import seeded

    with seeded(seed):
        return load_backbone(build_model(**build), weights)


def _callbacks(advance: "Advance", tensorboard: Path | None) -> "list[Callback]":
    from ttpfl.federation.progress import Rounds, Sent, TensorBoard

    log = [] if tensorboard is None else [TensorBoard(str(tensorboard))]
    return [Rounds(advance), Sent(say), *log]
