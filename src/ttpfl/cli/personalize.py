"""`ttpfl personalize`: from unlabelled pictures, in folders or from a pipe, to predictions."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli.foreign import Classes, ImageSize, Mean, Std, model_in
from ttpfl.cli.messages import say, warn
from ttpfl.cli.options import Arch
from ttpfl.errors import DataError
from ttpfl.printable import one_line

if TYPE_CHECKING:
    from torch import Tensor, nn

MANY = 100  # pictures; fewer may well be all of one class


def personalize(
    pictures: Annotated[
        list[str],
        typer.Argument(
            help="Picture files or folders (searched recursively). - reads paths from stdin.",
            show_default=False,
        ),
    ],
    model: Annotated[
        Path, typer.Option(help="Model file of `ttpfl train`, or any weights file.", dir_okay=False)
    ],
    rates: Annotated[
        Path | None,
        typer.Option(
            help="Rates file of `ttpfl learn`. Without it, the model does not adapt.",
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help="Adapt to the stream so far (online) or to each batch alone (batch).",
            show_default="online",
            autocompletion=lambda: ["online", "batch"],
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size.")] = 20,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add all class probabilities.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write. It appears once it is complete.",
            dir_okay=False,
            show_default="stdout",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line instead of CSV.")
    ] = False,
    arch: Arch = None,
    classes: Classes = None,
    image_size: ImageSize = None,
    mean: Mean = None,
    std: Std = None,
) -> None:
    """Classify unlabelled pictures while adapting to them.

    Prints path, class and confidence of each picture. Unreadable pictures are reported on stderr and
    skipped; it is an error only if none can be read.
    """
    from ttpfl.cli.predictions import opened, writer
    from ttpfl.cli.progress import progress
    from ttpfl.data.pictures import Unreadable
    from ttpfl.folder_stream import predict_pictures

    if mode is not None and rates is None:
        raise typer.BadParameter("nothing adapts without --rates", param_hint="--mode")
    given = {"classes": classes, "image_size": image_size, "mean": mean, "std": std}
    network, signature, card = model_in(model, arch, **given)
    _tell_of_chance(model, card)
    predictor = _predictor(network, rates, mode or "online")
    paths = _tell_of_resizing(_paths(pictures), signature.image_size)
    stream = predict_pictures(predictor, paths, signature, batch_size)
    done = unreadable = 0
    labels: set[str] = set()
    # A bar between lines of output would be in the way.
    show = out is not None or not sys.stdout.isatty()
    with opened(out) as text, progress("predicting", "picture", show=show, patient=True) as advance:
        write = writer(text, signature.classes, probabilities, json)
        for found in stream:
            if isinstance(found, Unreadable):
                warn(one_line(f"{found.path} is left out, since it cannot be read: {found.reason}"))
                unreadable += 1
            else:
                write(found)
                labels.add(found.label)
                done += 1
                advance(done, None)
        if not done:
            raise DataError(_nothing(pictures, unreadable))
    if unreadable:
        warn(f"{unreadable} of {done + unreadable} pictures could not be read")
    if done >= MANY and len(labels) == 1:
        advice = "check the model and its --mean and --std" if rates is None else "compare without --rates"
        warn(f"all {done} pictures were given the same class, {labels.pop()!r}: {advice}")


def _tell_of_chance(model: Path, card: dict[str, Any]) -> None:
    """What `ttpfl train` found out about the model, where it is bad and the card says so in full."""
    found = card.get("checked")
    if not isinstance(found, dict) or found.get("at_chance") is not True:
        return
    accuracy, chance = found.get("validation_accuracy"), found.get("chance")
    if _is_share(accuracy) and _is_share(chance):
        warn(
            f"{model} is no better than chance: accuracy {accuracy:.1%} on its source clients' validation "
            f"data, {chance:.1%} by always predicting the commonest class"
        )


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _tell_of_resizing(paths: Iterable[str], size: tuple[int, int]) -> Iterator[str]:
    """The same paths; once, at the first picture of another size, a line that says what happens to it."""
    from ttpfl.data.extras import extra
    from ttpfl.reading import open_regular

    told = False
    for path in paths:
        if not told:
            # What cannot be read is told later. A camera may have been held upright.
            with suppress(Exception), open_regular(path) as file, extra("PIL.Image").open(file) as picture:
                if told := picture.size not in (size[::-1], size):
                    wide, high = picture.size
                    say(f"pictures are resized to {size[1]}x{size[0]} for the model; {path} is {wide}x{high}")
        yield path


def _predictor(network: "nn.Module", rates: Path | None, mode: str) -> "Callable[[Tensor], Tensor]":
    from ttpfl.evaluation.evaluator import plain
    from ttpfl.personalizer import Personalizer
    from ttpfl.rates import Rates

    if rates is None:
        return plain(network)
    return Personalizer(network, Rates.load(rates, model=network), mode=mode)  # type: ignore[arg-type]


def _paths(places: Iterable[str]) -> Iterator[str]:
    """The pictures' paths, one after the other: no list of all of them is ever made."""
    from ttpfl.data.pictures import pictures_below

    for place in places:
        if place == "-":
            lines = (os.fsdecode(line.rstrip(b"\r\n")) for line in sys.stdin.buffer)
            yield from filter(None, lines)
        elif Path(place).is_dir():
            yield from map(str, pictures_below(Path(place)))
        else:
            yield place


def _nothing(places: list[str], unreadable: int) -> str:
    if unreadable:
        return (
            "the picture could not be read"
            if unreadable == 1
            else f"none of {unreadable} pictures could be read"
        )
    return f"there are no pictures in {', '.join(places)}"
