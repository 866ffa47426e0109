"""Messages of the library in the words of the command line, with options instead of arguments."""

import re
from dataclasses import fields

from ttpfl.federation.settings import LearnSettings, TrainSettings

EXAMPLES = {"image_size": "48", "skip_unreadable": "true"}  # options of data sets, each with a value
RECIPES = ("run", "demo", "recipe")

_ARGUMENT = re.compile(r"(?<![\w.-])(?<!--option )(?<!--set )([a-z_]+)=('[^']*'|[\w.]+)?")
_DOWNLOAD = re.compile(r"load\('([\w-]+)', download=True\)")
_SETTINGS = {entry.name for kind in (TrainSettings, LearnSettings) for entry in fields(kind)}
_SETTINGS |= {"shift", "resume"}
# In a sentence, `seed` is an option of a data set: the command line checks its own --seed first.
_NAMES = "|".join(sorted(_SETTINGS - {"seed"}))
_VALUE = r"(?:-?\d|'|nan|-?inf|None|True|False)"
_SENTENCE = re.compile(
    rf"(?<![\w.-])(?:(?<=lower )lr|(?<=another )lr|(?:{_NAMES})(?= (?:(?:is|was) {_VALUE}|must be )))\b"
)


def option_name(name: str) -> str:
    """The option for an argument.

    >>> option_name("held_out"), option_name("set_")
    ('--held-out', '--set')
    """
    return f"--{name.rstrip('_').replace('_', '-')}"


def as_options(message: str, command: str | None) -> str:
    """A message of the library with the options of a command instead of arguments.

    >>> as_options("images have 2 sizes: pass image_size= to resize them", "train")
    'images have 2 sizes: pass --option image_size=48 to resize them'
    >>> as_options("images have 2 sizes: pass image_size= to resize them", "run")
    'images have 2 sizes: pass --set data.options.image_size=48 to resize them'
    >>> as_options("use average='median', or set validate_every=1 (data_dir= names another)", "learn")
    'use --average median, or set --validate-every 1 (--data-dir names another)'
    >>> as_options("batch_size must be a positive integer, got 0", "learn")
    '--batch-size must be a positive integer, got 0'
    """
    message = _DOWNLOAD.sub(r"`ttpfl data download \1`", message)
    message = _ARGUMENT.sub(lambda match: _argument_as_option(match, command), message)
    return message if command in RECIPES else _SENTENCE.sub(lambda match: option_name(match[0]), message)


def _argument_as_option(argument: re.Match[str], command: str | None) -> str:
    name, value = argument[1], (argument[2] or "").strip("'")
    if name in EXAMPLES:
        value = value.lower() or EXAMPLES[name]
        if command == "personalize":
            return f"{option_name(name)} {value}"
        return f"{'--set data.options.' if command in RECIPES else '--option '}{name}={value}"
    if name == "data_dir":
        return option_name(name)
    if name not in _SETTINGS or command in RECIPES:
        return argument[0]
    if value in ("True", "False"):
        return option_name(name if value == "True" else f"no_{name}")
    return f"{option_name(name)} {value}".rstrip()
