"""From the library's words to the command line's: `image_size=` of Python is an option here."""

import re
from collections.abc import Callable
from dataclasses import fields

from ttpfl.federation.settings import LearnSettings, TrainSettings

EXAMPLES = {"image_size": "48", "skip_unreadable": "true"}  # options of data sets, and what they may be
RECIPES = ("run", "demo", "recipe")

_ARGUMENT = re.compile(r"(?<![\w.-])(?<!--option )(?<!--set )([a-z_]+)=('[^']*'|[\w.]+)?")
_DOWNLOAD = re.compile(r"load\('([\w-]+)', download=True\)")
_SETTINGS = {entry.name for kind in (TrainSettings, LearnSettings) for entry in fields(kind)} | {
    "shift",
    "resume",
}
# `seed` speaks of an option of a data set: the command line checks its own seed before the library does.
_NAMES = "|".join(sorted(_SETTINGS - {"seed"}))
_VALUE = r"(?:-?\d|'|nan|-?inf|None|True|False)"
_SENTENCE = re.compile(
    rf"(?<![\w.-])(?:(?<=lower )lr|(?<=another )lr|(?:{_NAMES})(?= (?:is|was) {_VALUE}| must be ))\b"
)


def as_options(message: str, command: str | None) -> str:
    """An error or a warning of the library as the user of a command can follow it.

    >>> as_options("pictures have 2 sizes: pass image_size= to resize them", "train")
    'pictures have 2 sizes: pass --option image_size=48 to resize them'
    >>> as_options("pictures have 2 sizes: pass image_size= to resize them", "run")
    'pictures have 2 sizes: pass --set data.options.image_size=48 to resize them'
    >>> as_options("use average='median', or set validate_every=1 (data_dir= names another)", "learn")
    'use --average median, or set --validate-every 1 (--data-dir names another)'
    >>> as_options("batch_size must be a positive integer, got 0", "learn")
    '--batch-size must be a positive integer, got 0'
    """
    message = _DOWNLOAD.sub(r"`ttpfl data download \1`", message)
    message = _ARGUMENT.sub(_spelling(command), message)
    return message if command in RECIPES else _SENTENCE.sub(_named, message)


def _named(found: re.Match[str]) -> str:
    return f"--{found[0].replace('_', '-')}"


def _spelling(command: str | None) -> Callable[[re.Match[str]], str]:
    def spelled(found: re.Match[str]) -> str:
        name, value = found[1], (found[2] or "").strip("'")
        if name in EXAMPLES:
            return _data_option(command, name, value.lower() or EXAMPLES[name])
        if name == "data_dir":
            return "--data-dir"
        if name not in _SETTINGS or command in RECIPES:
            return found[0]
        option = name.replace("_", "-")
        if value in ("True", "False"):
            return f"--{option}" if value == "True" else f"--no-{option}"
        return f"--{option} {value}".rstrip()

    return spelled


def _data_option(command: str | None, name: str, value: str) -> str:
    if command in RECIPES:
        return f"--set data.options.{name}={value}"
    if command == "personalize":
        return f"--{name.replace('_', '-')} {value}"
    return f"--option {name}={value}"
