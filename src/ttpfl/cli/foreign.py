"""Files of weights that do not say what they are: options for that, and the model that comes of both."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ttpfl.errors import DataError, ModelError
from ttpfl.limits import MOST_CLASSES
from ttpfl.reading import read_bytes

if TYPE_CHECKING:
    from torch import nn

    from ttpfl.models import Signature


def _option(help: str) -> Any:
    panel = "For weights that `ttpfl train` did not write"
    return typer.Option(help=help, rich_help_panel=panel, show_default=False)


Classes = Annotated[
    str | None, _option("Number of classes, comma-separated names, or a file with one name per line.")
]
ImageSize = Annotated[str | None, _option("Image size: 32 or 24x32 (height x width).")]
Mean = Annotated[str | None, _option("Mean of red, green and blue, such as 0.485,0.456,0.406.")]
Std = Annotated[str | None, _option("Standard deviation of red, green and blue, such as 0.229,0.224,0.225.")]


def model_in(
    path: Path, arch: str | None, **given: str | None
) -> "tuple[nn.Module, Signature, dict[str, Any]]":
    """The model in a file, what it takes and answers, and the file's card.

    What is given overrules what the file says.
    """
    from ttpfl.models import Signature
    from ttpfl.models.build import arguments_for
    from ttpfl.models.files import read_card

    card = read_card(path)
    known = card.get("signature", {})
    if not isinstance(known, dict):
        raise ModelError(f"{path} has a signature that is no table but {known!r:.60}: get it again")
    said = {**known, **{name: _read(name, text) for name, text in given.items() if text}}
    missing = ["arch"] if arch is None and "build" not in card else []
    missing += [name for name in _READERS if name not in said]
    if missing:
        options = " ".join(map(_spelled, missing))
        raise ModelError(f"{path} does not say all that is needed to use it: add {options}")
    signature = Signature.read(said)
    facts = arguments_for(arch, len(signature.classes), signature.image_size) if arch else {}
    model, card = trained_model(path, arch, **facts)
    signature.check_fits(model)
    return model, signature, card


def trained_model(path: Path, arch: str | None, **facts: Any) -> "tuple[nn.Module, dict[str, Any]]":
    """The model in a file and the file's card; `arch`, if given, builds the network and gets the `facts`."""
    from ttpfl.models import load_model
    from ttpfl.models.build import rebuild
    from ttpfl.models.files import read_card

    if arch is None:
        return load_model(path)
    built = read_card(path).get("build", {})
    if not isinstance(built, dict):
        raise ModelError(f"{path} says that its network is built with {built!r:.60}: get it again")
    return load_model(path, rebuild({**built, **facts, "name": arch}))


def _read(name: str, text: str) -> list[Any]:
    """An option's text as a field of `Signature`.

    >>> _read("classes", "3"), _read("classes", "cat, dog"), _read("image_size", "24x32")
    (['0', '1', '2'], ['cat', 'dog'], [24, 32])
    >>> _read("mean", "0.5,0.5")
    Traceback (most recent call last):
        ...
    ttpfl.errors.DataError: --mean 0.5,0.5: it takes a number for each of red, green and blue
    """
    reader, takes = _READERS[name]
    try:
        return reader(text)
    except ValueError:
        raise DataError(f"{_spelled(name)} {text}: it takes {takes}") from None


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


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


def _colours(text: str) -> list[float]:
    red, green, blue = map(float, text.split(","))
    return [red, green, blue]


_READERS: dict[str, tuple[Callable[[str], list[Any]], str]] = {
    "classes": (
        _classes,
        f"a number, names with commas between them, or a file of names; at most {MOST_CLASSES}",
    ),
    "image_size": (_sides, "a side, or height and width, such as 32 or 24x32"),
    "mean": (_colours, "a number for each of red, green and blue"),
    "std": (_colours, "a number for each of red, green and blue"),
}
