"""Facts about data sets, plain and as tables."""

from dataclasses import asdict
from os import PathLike
from typing import Any

from rich import box
from rich.table import Table

from ttpfl.data.images import DatasetInfo
from ttpfl.data.registry import client_choices, data_directory, dataset_info, is_there, names, options


def data_set_facts(name: str, data_dir: str | PathLike[str] | None = None) -> dict[str, Any]:
    """All that is known about a data set without loading it, for programs.

    >>> data_set_facts("digits")["options"]
    {'seed': 0, 'augmentation': ''}
    """
    known = asdict(dataset_info(name))
    del known["defaults"], known["places"], known["augmentation"]  # in "clients", "there" and "options"
    return {
        **known,
        "there": is_there(name, data_dir),
        "data_directory": data_directory(data_dir),
        "options": options(name),
        "clients": client_choices(name),
    }


def data_sets_table(data_dir: str | PathLike[str] | None = None) -> Table:
    """One line per data set; what is too long for the terminal is cut, and in full in `data_set_table`."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("title", no_wrap=True, ratio=1)
    table.add_column("classes", justify="right")
    table.add_column("domains", justify="right")
    table.add_column("size", no_wrap=True)
    table.add_column("licence", no_wrap=True, ratio=1)
    table.add_column("there", no_wrap=True)
    for name in names():
        known = dataset_info(name)
        table.add_row(
            name,
            known.title,
            str(len(known.classes) or "yours"),
            str(len(known.domains) or "yours"),
            _size(known),
            known.licence,
            _there(known, data_dir),
        )
    return table


def data_set_table(name: str, data_dir: str | PathLike[str] | None = None) -> Table:
    """One row per fact about a data set."""
    known = dataset_info(name)
    rows = {
        "name": known.name,
        "title": known.title,
        "there": f"{_there(known, data_dir)} ({data_directory(data_dir)})",
        "images": f"{known.samples:,}" if known.samples else "as many as there are",
        "classes": _counted(known.classes),
        "domains": _counted(known.domains),
        "image size": _size(known),
        "channels": known.channels,
        "mean": _triple(known.mean),
        "std": _triple(known.std),
        "licence": known.licence,
        "homepage": known.homepage or "none",
        "to put there": known.instructions.rstrip(","),
    }
    for file in known.files:
        rows[f"download{' ' + file.path if len(known.files) > 1 else ''}"] = (
            f"{file.url} (sha256 {file.sha256})"
        )
    rows["options"] = _pairs(options(name)) or "none"
    rows["clients"] = _pairs(client_choices(name))
    table = Table.grid("", "", padding=(0, 2))
    table.columns[0].style, table.columns[0].no_wrap = "bold", True
    for fact, value in rows.items():
        table.add_row(fact, value)
    return table


def _there(known: DatasetInfo, data_dir: str | PathLike[str] | None) -> str:
    if not known.places:
        return "made here"
    return "yes" if is_there(known.name, data_dir) else "no"


def _size(known: DatasetInfo) -> str:
    return "{}x{}".format(*known.image_size) if any(known.image_size) else "yours"


def _triple(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _counted(labels: tuple[str, ...]) -> str:
    return f"{len(labels)}: {', '.join(labels)}" if labels else "yours"


def _pairs(values: dict[str, Any]) -> str:
    shown = {name: value if isinstance(value, str) else str(value).lower() for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())
