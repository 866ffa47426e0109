"""Information about data sets, plain and as tables."""

from dataclasses import asdict
from os import PathLike
from typing import Any

from rich import box
from rich.table import Table

from ttpfl.data.images import DatasetInfo
from ttpfl.data.registry import client_choices, data_directory, dataset_info, is_there, names, options


def data_set_info(name: str, data_dir: str | PathLike[str] | None = None) -> dict[str, Any]:
    """Information about a data set that needs no loading, for JSON.

    >>> data_set_info("digits")["options"]
    {'seed': 0, 'augmentation': ''}
    """
    info = asdict(dataset_info(name))
    del info["defaults"], info["places"], info["augmentation"]  # in "clients", "there" and "options"
    return {
        **info,
        "there": is_there(name, data_dir),
        "data_directory": data_directory(data_dir),
        "options": options(name),
        "clients": client_choices(name),
    }


def data_sets_table(data_dir: str | PathLike[str] | None = None) -> Table:
    """One line per data set, cut to the width of the terminal."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("title", no_wrap=True, ratio=1)
    table.add_column("classes", justify="right")
    table.add_column("domains", justify="right")
    table.add_column("size", no_wrap=True)
    table.add_column("licence", no_wrap=True, ratio=1)
    table.add_column("available", no_wrap=True)
    for info in map(dataset_info, names()):
        counts = (str(len(labels) or _unknown(info)) for labels in (info.classes, info.domains))
        table.add_row(info.name, info.title, *counts, _size(info), info.licence, _available(info, data_dir))
    return table


def data_set_table(name: str, data_dir: str | PathLike[str] | None = None) -> Table:
    """One row per property of a data set."""
    info = dataset_info(name)
    rows = {
        "name": info.name,
        "title": info.title,
        "available": f"{_available(info, data_dir)} ({data_directory(data_dir)})",
        "samples" if info.natural else "images": f"{info.samples:,}" if info.samples else "yours",
        "classes": _counted(info.classes),
        "domains": "one per client" if info.natural else _counted(info.domains),
        "sample size" if info.natural else "image size": _size(info),
        "channels": info.channels,
        "mean": _moments(info, info.mean),
        "std": _moments(info, info.std),
        "licence": info.licence,
        "homepage": info.homepage or "none",
        "needs": info.instructions.rstrip(","),
    }
    for file in info.files:
        path = f" {file.path}" if len(info.files) > 1 else ""
        rows[f"download{path}"] = f"{file.url} (sha256 {file.sha256})"
    rows["options"] = _pairs(options(name)) or "none"
    rows["clients"] = _pairs(client_choices(name))
    table = Table.grid("", "", padding=(0, 2))
    table.columns[0].style, table.columns[0].no_wrap = "bold", True
    for label, value in rows.items():
        table.add_row(label, value)
    return table


def _available(info: DatasetInfo, data_dir: str | PathLike[str] | None) -> str:
    if not info.places:
        return "generated"
    return "yes" if is_there(info.name, data_dir) else "no"


def _size(info: DatasetInfo) -> str:
    return info.size_text or "yours"


def _unknown(info: DatasetInfo) -> str:
    """What stands for an unknown number."""
    return "clients" if info.classes else "yours"


def _moments(info: DatasetInfo, values: tuple[float, ...]) -> str:
    listed = ", ".join(f"{value:g}" for value in values)
    if not info.natural:
        return listed
    of_images = f"; of images {listed}" if "images" in options(info.name) else ""
    return "of the source clients' training data" + of_images


def _counted(labels: tuple[str, ...]) -> str:
    return f"{len(labels)}: {', '.join(labels)}" if labels else "yours"


def _pairs(values: dict[str, Any]) -> str:
    shown = {name: value if isinstance(value, str) else str(value).lower() for name, value in values.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())
