"""Weights that `ttpfl train` did not write: options that describe them, and how to load them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ttpfl.cli.options import Arch, option
from ttpfl.cli.words import option_name
from ttpfl.errors import DataError, ModelError
from ttpfl.util.limits import MOST_CLASSES
from ttpfl.util.reading import read_bytes

if TYPE_CHECKING:
    from torch import nn

    from ttpfl.models import Signature


@dataclass(frozen=True)
class WeightsOptions:
    """The network of a weights file, its inputs and its classes."""

    arch: Arch = None
    classes: Annotated[
        str | None, option("Number of classes, comma-separated names, or a file with one name per line.")
    ] = None
    image_size: Annotated[str | None, option("Image size: 32 or 24x32 (height x width).")] = None
    mean: Annotated[str | None, option("Mean of each channel, such as 0.485,0.456,0.406 (RGB).")] = None
    std: Annotated[
        str | None, option("Standard deviation of each channel, such as 0.229,0.224,0.225 (RGB).")
    ] = None
    scale: Annotated[str | None, option("Factor before normalisation, not for images.", "1")] = None


def model_in(
    path: Path, arch: str | None, **options: str | None
) -> "tuple[nn.Module, Signature, dict[str, Any]]":
    """The model in a file, its signature, and the file's card; options override the card."""
    from ttpfl.models import Signature
    from ttpfl.models.build import arguments_for
    from ttpfl.models.files import read_card

    card = read_card(path)
    stored = card.get("signature", {})
    if not isinstance(stored, dict):
        raise ModelError(f"{path} has an invalid signature, not a table: {stored!r:.60}; get the file again")
    parts = {
        **_of_sites(card),
        **stored,
        **{name: _read(name, text) for name, text in options.items() if text},
    }
    missing = ["arch"] if arch is None and "build" not in card else []
    missing += [name for name in _REQUIRED if name not in parts]
    if missing:
        raise ModelError(f"{path} does not describe its model: add {' '.join(map(option_name, missing))}")
    signature = Signature.read(parts)
    build = arguments_for(arch, len(signature.classes), signature.image_size, signature.shape) if arch else {}
    model, card = trained_model(path, arch, **build)
    signature.check_fits(model)
    return model, signature, card


def _of_sites(card: dict[str, Any]) -> dict[str, Any]:
    """What is known of a network for other samples than images if only its sites know their normalisation."""
    build = card.get("build")
    shape, classes = (
        (build.get("input_shape"), build.get("num_classes")) if isinstance(build, dict) else (0, 0)
    )
    if not isinstance(shape, list) or type(classes) is not int or not 0 < classes <= MOST_CLASSES:
        return {}
    return {"shape": shape, "image_size": [0, 0], "classes": [str(number) for number in range(classes)]}


def trained_model(path: Path, arch: str | None, **build: Any) -> "tuple[nn.Module, dict[str, Any]]":
    """The model in a file and the file's card; `arch` and `build` override how the card builds it."""
    from ttpfl.models import load_model
    from ttpfl.models.build import rebuild
    from ttpfl.models.files import read_card

    if arch is None:
        return load_model(path)
    stored = read_card(path).get("build", {})
    if not isinstance(stored, dict):
        raise ModelError(
            f"{path} describes its network by {stored!r:.60}, not by a table: get the file again"
        )
    return load_model(path, rebuild({**stored, **build, "name": arch}))


def _read(name: str, text: str) -> Any:
    """An option's text as a field of `Signature`.

    >>> _read("classes", "3"), _read("classes", "cat, dog"), _read("image_size", "24x32")
    (['0', '1', '2'], ['cat', 'dog'], [24, 32])
    >>> _read("mean", "0.5,half")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: --mean 0.5,half: expected a number for each channel, separated by commas
    """
    reader, expected = _READERS[name]
    try:
        return reader(text)
    except ValueError:
        raise DataError(f"{option_name(name)} {text}: expected {expected}") from None


def _classes(text: str) -> list[str]:
    if text.isdecimal():
        if len(text) > len(str(MOST_CLASSES)) or int(text) > MOST_CLASSES:
            raise ValueError
        return [str(number) for number in range(int(text))]
    if "," in text:
        return [name.strip() for name in text.split(",")]
    if not Path(text).is_file():
        raise ValueError
    return read_bytes(text).decode("utf-8").splitlines()


def _sides(text: str) -> list[int]:
    sides = [int(side) for side in text.split("x")]
    if len(sides) > 2:
        raise ValueError
    return [sides[0], sides[-1]]


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


_READERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "classes": (_classes, f"a number, comma-separated names, or a file of names; at most {MOST_CLASSES}"),
    "image_size": (_sides, "a side, or height and width, such as 32 or 24x32"),
    "mean": (_numbers, "a number for each channel, separated by commas"),
    "std": (_numbers, "a number for each channel, separated by commas"),
    "scale": (float, "a number"),
}
_REQUIRED = ("classes", "image_size", "mean", "std")
