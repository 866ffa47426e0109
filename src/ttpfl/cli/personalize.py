"""`ttpfl personalize`: predictions for unlabelled images, from folders or a pipe, and for other samples."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.cli import completion
from ttpfl.cli.foreign import WeightsOptions, model_in
from ttpfl.cli.guard_report import answering, report_evidence
from ttpfl.cli.messages import say, warn
from ttpfl.cli.option_groups import with_groups
from ttpfl.cli.options import argument, file_option, flag, option
from ttpfl.errors import DataError
from ttpfl.util.printable import one_line

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ttpfl.data.pictures import Unreadable
    from ttpfl.folder_stream import Prediction

MANY = 100  # images; fewer may well be all of one class


@dataclass(frozen=True)
class OutputOptions:
    """What to write for each image, and where."""

    out: Annotated[
        Path | None, option("File to write. It appears once it is complete.", "stdout", dir_okay=False)
    ] = None
    probabilities: Annotated[bool, flag("--probabilities", "Add all class probabilities.")] = False
    json: Annotated[bool, flag("--json", "Print one JSON object per line instead of CSV.")] = False


@with_groups({"For weights that `ttpfl train` did not write": "arch classes image_size mean std scale"})
def personalize(
    images: Annotated[
        list[str],
        argument(
            "Image files or folders (searched recursively); - reads paths from stdin. For a model of "
            "signals or tables: npz, npy or CSV files.",
            metavar="FILES...",
        ),
    ],
    model: Annotated[Path, option("Model file of `ttpfl train`, or weights.", dir_okay=False)],
    weights: WeightsOptions,
    output: OutputOptions,
    rates: Annotated[
        Path | None, file_option("Rates file of `ttpfl learn`. Without it, the model does not adapt.")
    ] = None,
    mode: Annotated[
        str | None,
        option(
            "Adapt to the stream so far (online) or to each batch alone (batch).", "online", completion.modes
        ),
    ] = None,
    batch_size: Annotated[int, option("Batch size, as in `ttpfl learn`.", min=1)] = 20,
    no_guard: Annotated[bool, flag("--no-guard", "Ignore the guard of the rates.")] = False,
    fail_on_alarm: Annotated[
        bool, flag("--fail-on-alarm", "Exit with code 3 if the guard stopped adaptation.")
    ] = False,
) -> None:
    """Classify unlabelled images or other samples while adapting to them.

    Prints path, class and confidence of each image. Unreadable images are reported on stderr and
    skipped; it is an error only if none can be read. If the rates have a guard, the model without
    adaptation answers where adaptation seems to harm, and each line names the model that answered.
    """
    from ttpfl.folder_stream import predict_pictures
    from ttpfl.sample_stream import predict_samples

    if mode is not None and rates is None:
        raise typer.BadParameter("nothing adapts without --rates", param_hint="--mode")
    network, signature, card = model_in(model, **vars(weights))
    _warn_of_chance(model, card)
    predictor = _predictor(network, rates, mode or "online", guard=not no_guard)
    stream: Iterable[Prediction | Unreadable]
    if signature.shape:
        stream = predict_samples(predictor, images, signature, batch_size)
    else:
        paths = _announce_resizing(_paths(images), signature.image_size)
        stream = predict_pictures(predictor, paths, signature, batch_size)
    answered = partial(answering, predictor)
    labels, unreadable = _write_all(stream, signature.classes, output, images, answered)
    done = labels.total()
    if unreadable:
        warn(f"{unreadable} of {done + unreadable} images could not be read")
    if done >= MANY and len(labels) == 1:
        advice = "check the model and its --mean and --std" if rates is None else "compare without --rates"
        warn(f"all {done} samples were given the same class, {next(iter(labels))!r}: {advice}")
    report_evidence(predictor, fail_on_alarm)


def _write_all(
    stream: "Iterable[Prediction | Unreadable]",
    classes: tuple[str, ...],
    output: OutputOptions,
    places: list[str],
    answered: Callable[[], str | None],
) -> tuple[Counter[str], int]:
    """Write each prediction as it comes, with the model that answered it, if there is a choice.

    Returns label counts and the number of unreadable images.
    """
    from ttpfl.cli.predictions import opened, writer
    from ttpfl.cli.progress import progress
    from ttpfl.data.pictures import Unreadable

    labels, unreadable = Counter[str](), 0
    # No progress bar between lines of output.
    show = output.out is not None or not sys.stdout.isatty()
    with opened(output.out) as text, progress("predicting", "image", show=show, patient=True) as advance:
        write = writer(text, classes, output.probabilities, output.json)
        for outcome in stream:
            if isinstance(outcome, Unreadable):
                warn(one_line(f"skipped {outcome.path}, which cannot be read: {outcome.reason}"))
                unreadable += 1
            else:
                write(outcome, answered())
                labels[outcome.label] += 1
                advance(labels.total(), None)
        if not labels:  # an error before the file is complete, so that none is left behind
            raise DataError(_no_image(places, unreadable))
    return labels, unreadable


def _warn_of_chance(model: Path, card: dict[str, Any]) -> None:
    """Repeat the warning of `ttpfl train` about a bad model, if the card has all figures."""
    checked = card.get("checked")
    if not isinstance(checked, dict) or checked.get("at_chance") is not True:
        return
    accuracy, chance = checked.get("validation_accuracy"), checked.get("chance")
    if _is_fraction(accuracy) and _is_fraction(chance):
        warn(
            f"{model} is no better than chance: accuracy {accuracy:.1%} on its source clients' validation "
            f"data, {chance:.1%} by always predicting the most common class"
        )


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _announce_resizing(paths: Iterable[str], size: tuple[int, int]) -> Iterator[str]:
    """The same paths; the first image of another size is announced."""
    from ttpfl.data.extras import extra
    from ttpfl.util.reading import open_regular

    announced = False
    for path in paths:
        if not announced:
            # Unreadable images are reported later. Portrait and landscape count as the same size.
            with suppress(Exception), open_regular(path) as file, extra("PIL.Image").open(file) as image:
                if announced := image.size not in (size[::-1], size):
                    wide, high = image.size
                    say(f"images are resized to {size[1]}x{size[0]} for the model; {path} is {wide}x{high}")
        yield path


def _predictor(
    network: "nn.Module", rates: Path | None, mode: str, guard: bool
) -> "Callable[[Tensor], Tensor]":
    from ttpfl.core.personalizer import Personalizer
    from ttpfl.core.rates import Rates
    from ttpfl.evaluation.evaluator import plain

    if rates is None:
        return plain(network)
    loaded = Rates.load(rates, model=network)
    if not bool(loaded.values.any()):
        warn(f"all rates in {rates} are zero, so the plain model answers: nothing was shown to help others")
    return Personalizer(network, loaded, mode, guard=guard)  # type: ignore[arg-type]


def _paths(places: Iterable[str]) -> Iterator[str]:
    """The paths of all images, one at a time, since there may be very many."""
    from ttpfl.data.pictures import pictures_below

    for place in places:
        if place == "-":
            lines = (os.fsdecode(line.rstrip(b"\r\n")) for line in sys.stdin.buffer)
            yield from filter(None, lines)
        elif Path(place).is_dir():
            yield from map(str, pictures_below(Path(place)))
        else:
            yield place


def _no_image(places: list[str], unreadable: int) -> str:
    if not unreadable:
        return f"there are no images in {', '.join(places)}"
    return "the image could not be read" if unreadable == 1 else f"none of {unreadable} images could be read"
