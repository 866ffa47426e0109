"""`ttpfl train` and `ttpfl learn` with --engine flower: submit a run to a federation and wait for it."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli.errors import resumable_command
from ttpfl.cli.messages import say
from ttpfl.cli.options import RunOptions, folder_option, option
from ttpfl.cli.outcome import figures, report
from ttpfl.cli.words import option_name
from ttpfl.errors import FederationError
from ttpfl.federation.settings import LearnSettings, RunSettings, TrainSettings
from ttpfl.util.settings_kit import one_of

if TYPE_CHECKING:
    from torch import nn

    from ttpfl.flower.timeouts import Timeouts
    from ttpfl.models import Signature

LET_GO = 30.0  # seconds for a stopped run to release its folder


@dataclass(frozen=True)
class SiteOptions:
    """Which engine runs the clients and, for real sites, how to reach them."""

    engine: Annotated[str, option("Where clients run: local or flower.")] = "local"
    federation: Annotated[Path | None, folder_option("Federation folder of `ttpfl flower init`.")] = None
    deadline: Annotated[
        float | None, option("Wait for late replies once half have arrived.", "60", min=0, metavar="SECONDS")
    ] = None
    longest: Annotated[
        float | None, option("Longest wait for replies.", "3600", min=1, metavar="SECONDS")
    ] = None

    def chosen(self, **local: object) -> bool:
        """Whether clients are real sites. Options of the other engine, such as `local`, are an error."""
        one_of("local", "flower").check(typer.BadParameter, **{"--engine": self.engine})
        flower = self.engine == "flower"
        other = "local" if flower else "flower"
        for name, value in (local if flower else {**vars(self), "engine": None}).items():
            if value is not None and value != []:
                raise typer.BadParameter(
                    f"{option_name(name)} needs --engine {other}, but --engine is {self.engine}"
                )
        if flower:
            from ttpfl.flower.version import check_flower

            check_flower()
        return flower

    @property
    def home(self) -> Path:
        """The federation's folder."""
        if self.federation is None:
            raise typer.BadParameter("--engine flower needs --federation, the folder of `ttpfl flower init`")
        return self.federation

    def timeouts(self) -> "Timeouts":
        """How long to wait for sites. The deadline also limits the time to connect."""
        from ttpfl.flower.timeouts import Timeouts

        limits = {"deadline": self.deadline, "longest": self.longest}
        timeouts = Timeouts(**{name: seconds for name, seconds in limits.items() if seconds is not None})
        return replace(timeouts, connect=min(timeouts.connect, timeouts.deadline))


@dataclass(frozen=True)
class TrainSiteOptions(SiteOptions):
    """Options of training, with the shape of the data that stays at the sites."""

    classes: Annotated[int | None, option("Number of classes at the sites.", min=2, metavar="INTEGER")] = None
    image_size: Annotated[
        int | None, option("Image size at the sites, in pixels.", min=1, metavar="INTEGER")
    ] = None

    input_shape: Annotated[
        str | None,
        option("Shape of samples at the sites that are no images, such as 3x128.", metavar="SIDES"),
    ] = None

    def network(self, name: str) -> dict[str, Any]:
        """How to build the network `name` for the sites' samples."""
        from ttpfl.models.build import arguments_for

        if self.classes is None or (self.image_size is None) == (self.input_shape is None):
            raise typer.BadParameter(
                "--engine flower needs --classes, and --image-size or --input-shape for other samples"
            )
        if self.image_size is not None:
            return {"name": name, "num_classes": self.classes, "image_size": self.image_size}
        sides = str(self.input_shape).split("x")
        if not all(side.isdecimal() and 0 < int(side) < 10**6 for side in sides):
            raise typer.BadParameter(f"--input-shape {self.input_shape}: it takes the form 13 or 3x128")
        return arguments_for(name, self.classes, (0, 0), tuple(map(int, sides)))


def learn_over_sites(
    model_file: Path, arch: str | None, rates: Path | None,
    sites: SiteOptions, run: RunOptions, settings: LearnSettings,
) -> None:  # fmt: skip
    """Learn rates on the sites' validation data."""
    _check_folder(sites.home, run, settings)
    start = None if rates is None else str(rates.absolute())
    _carry_out("learn", model_file, sites, run, settings, arch=arch, rates=start)
    report(run.out / "rates.safetensors", _history(run.out), run.json)


def train_over_sites(
    model: "nn.Module", build: dict[str, Any], sites: SiteOptions, run: RunOptions, settings: TrainSettings
) -> None:
    """Train a global model on the sites' data."""
    from ttpfl.models.files import save_model

    _check_folder(sites.home, run, settings)
    run.out.mkdir(parents=True, exist_ok=True)
    start = run.out / "begin.safetensors"
    save_model(start, model, build=build)
    # How sites normalise other samples than images is known to them alone.
    images = "input_shape" not in build
    card = {"signature": asdict(_signature(build["num_classes"], build["image_size"]))} if images else {}
    _carry_out("train", start, sites, run, settings, arch=build["name"], card=card)
    report(run.out / "model.safetensors", _history(run.out), run.json)


def _signature(classes: int, image_size: int) -> "Signature":
    """The signature of a model for sites, which normalise like the data set `arrays` and keep class names."""
    from ttpfl.data import dataset_info
    from ttpfl.models import Signature

    arrays, names = dataset_info("arrays"), tuple(str(number) for number in range(classes))
    return Signature(names, (image_size, image_size), arrays.mean, arrays.std)


def _check_folder(home: Path, run: RunOptions, settings: RunSettings) -> None:
    """Refuse a folder that belongs to another run, before anything is written to it."""
    from ttpfl.util.locks import FOLDER_LOCK, folder_lock, wait_until_free

    out = run.out
    if settings.eval_every:
        raise FederationError("eval_every needs target clients, which a federation of sites does not have")
    if not run.resume and _history(out):
        raise FederationError(f"{out} already has a run: resume it (--resume) or use another folder")
    if not wait_until_free(out, LET_GO):
        raise FederationError(
            f"a run at the server is still writing to {out}: wait until it ends, or find it with "
            f"`ttpfl flower runs {home}` and stop it with `ttpfl flower stop {home} RUN`"
        )
    if (out / FOLDER_LOCK).exists():
        with folder_lock(out):  # an error, if a run of the local engine holds it
            pass


def _carry_out(
    kind: str, model: Path, sites: SiteOptions, run: RunOptions, settings: RunSettings, **more: Any
) -> None:
    from ttpfl.flower.folder import Federation
    from ttpfl.flower.run_spec import RunSpec
    from ttpfl.flower.submit import carry_out

    federation = Federation.read(sites.home)
    spec = RunSpec(
        kind,
        str(model.absolute()),
        str(run.out.absolute()),
        list(federation.sites),
        asdict(settings),
        timeouts=asdict(sites.timeouts()),
        tensorboard=None if run.tensorboard is None else str(run.tensorboard.absolute()),
        **more,
    )
    shown = len(_history(run.out))

    def show_new_rounds() -> None:
        nonlocal shown
        history = _history(run.out)
        for record in history[shown:]:
            failed = f"; left out: {', '.join(record['failed'])}" if record["failed"] else ""
            abandoned = " (abandoned: too few replies)" if record["abandoned"] else ""
            say(f"round {record['round'] + 1}: {figures(record)}{failed}{abandoned}")
        shown = len(history)

    with resumable_command():
        carry_out(federation, spec, show_new_rounds)
    show_new_rounds()


def _history(out: Path) -> list[dict[str, Any]]:
    path = out / "history.jsonl"
    # The last line may be incomplete.
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
