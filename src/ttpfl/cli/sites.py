"""`ttpfl train` and `ttpfl learn` with --engine flower: an order to a federation, and what comes of it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttpfl.cli.errors import resumable_command
from ttpfl.cli.messages import say
from ttpfl.cli.outcome import figures, report
from ttpfl.errors import FederationError
from ttpfl.federation.settings import LearnSettings, RunSettings, TrainSettings

if TYPE_CHECKING:
    from torch import nn

    from ttpfl.flower.patience import Patience
    from ttpfl.models import Signature

LET_GO = 30.0  # seconds that a run which was stopped may take to let go of its folder


def learn_over_sites(
    model_file: Path,
    arch: str | None,
    rates: Path | None,
    home: Path,
    out: Path,
    settings: LearnSettings,
    resume: bool,
    patience: "Patience",
    tensorboard: Path | None,
    as_json: bool,
) -> None:
    """Learn rates on the sites' validation data."""
    _check_folder(home, out, settings, resume)
    begin = None if rates is None else str(rates.absolute())
    _carry_out("learn", model_file, home, out, settings, patience, tensorboard, arch=arch, rates=begin)
    report(out / "rates.safetensors", _history(out), as_json)


def train_over_sites(
    model: "nn.Module",
    build: dict[str, Any],
    home: Path,
    out: Path,
    settings: TrainSettings,
    resume: bool,
    patience: "Patience",
    tensorboard: Path | None,
    as_json: bool,
) -> None:
    """Train a global model on the sites' data."""
    from ttpfl.models.files import save_model

    _check_folder(home, out, settings, resume)
    out.mkdir(parents=True, exist_ok=True)
    begin = out / "begin.safetensors"
    save_model(begin, model, build=build)
    card = {"signature": asdict(_signature(build["num_classes"], build["image_size"]))}
    _carry_out("train", begin, home, out, settings, patience, tensorboard, arch=build["name"], card=card)
    report(out / "model.safetensors", _history(out), as_json)


def _signature(classes: int, image_size: int) -> "Signature":
    """What a model over sites takes: all of them normalise as `ttpfl.data` does with data of one's own.

    Names of classes are known to sites alone, if to anybody, so these are numbers.
    """
    from ttpfl.data import facts
    from ttpfl.models import Signature

    known, names = facts("arrays"), tuple(str(number) for number in range(classes))
    return Signature(names, (image_size, image_size), known.mean, known.std)


def patience_of(deadline: float | None, longest: float | None) -> "Patience":
    """With defaults for what was not given; sites have no more than the deadline to connect."""
    from ttpfl.flower.patience import Patience

    given = {"deadline": deadline, "longest": longest}
    patience = Patience(**{name: seconds for name, seconds in given.items() if seconds is not None})
    return replace(patience, connect=min(patience.connect, patience.deadline))


def _check_folder(home: Path, out: Path, settings: RunSettings, resume: bool) -> None:
    """Before anything is written there: what is in it may belong to a run that lives."""
    from ttpfl.federation import folder_lock
    from ttpfl.flower.run_lock import wait_until_free

    if settings.eval_every:
        raise FederationError("eval_every needs target clients, which a federation of sites does not have")
    if not resume and _history(out):
        raise FederationError(f"{out} already has a run: resume it (--resume) or begin elsewhere")
    if not wait_until_free(out, LET_GO):
        raise FederationError(
            f"a run at the server is still writing to {out}: wait until it ends, or find it with "
            f"`ttpfl flower runs {home}` and end it with `ttpfl flower stop {home} RUN`"
        )
    if (out / folder_lock.NAME).exists():
        with folder_lock.locked(out):  # an error, if a run with the local engine has it
            pass


def _carry_out(
    kind: str,
    model: Path,
    home: Path,
    out: Path,
    settings: RunSettings,
    patience: "Patience",
    tensorboard: Path | None,
    **more: Any,
) -> None:
    from ttpfl.flower.folder import Federation
    from ttpfl.flower.order import Order
    from ttpfl.flower.submit import carry_out

    federation = Federation.read(home)
    order = Order(
        kind,
        str(model.absolute()),
        str(out.absolute()),
        list(federation.sites),
        asdict(settings),
        patience=asdict(patience),
        tensorboard=None if tensorboard is None else str(tensorboard.absolute()),
        **more,
    )
    shown = len(_history(out))

    def watch() -> None:
        nonlocal shown
        for record in (history := _history(out))[shown:]:
            failed = f"; left out: {', '.join(record['failed'])}" if record["failed"] else ""
            abandoned = " (abandoned: too few answers)" if record["abandoned"] else ""
            say(f"round {record['round'] + 1}: {figures(record)}{failed}{abandoned}")
        shown = len(history)

    with resumable_command():
        carry_out(federation, order, watch)
    watch()


def _history(out: Path) -> list[dict[str, Any]]:
    path = out / "history.jsonl"
    # A line that is being written at this moment has no end yet.
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
