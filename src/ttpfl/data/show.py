"""An overview image of a population: what clients have, and how often they have each class."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ttpfl.data.clients import Client, SourceClient, TargetClient, TargetLabels, evenly
from ttpfl.data.extras import extra
from ttpfl.data.federate import Federated
from ttpfl.data.partition import Ids
from ttpfl.data.show_samples import draw_samples, name_features, proportions, turned_names
from ttpfl.util.files import written_in_one_step
from ttpfl.util.printable import counted

COLUMNS = 10  # images or signals of a client
COUNTED_SAMPLES = 1000  # most rows of a table from which quantiles are computed
ROWS = {"source": 6, "target": 4}  # clients in the contact sheet
LISTED = 1000  # most clients in the heat map; more are sampled evenly
NAMED = 60  # most clients for which the heat map shows names
COUNTED = 45  # most clients for which it shows numbers
SHORT = 2  # letters of class names that are never turned
NARROW = 12  # most classes for which it shows numbers

# Inches
BODY, HEADING, GAP, ROW = 7.4, 0.32, 0.12, 0.3
LETTER = 0.1  # with some room
SHEET, LABELS, BETWEEN, RIGHT, TOP = 6.4, 1.75, 1.25, 1.55, 0.8

AnyClient = SourceClient | TargetClient
Axes = Callable[[float, float, float, float], Any]
"""Adds axes of a width and height at a distance from the left edge and from the title, in inches."""


@dataclass(frozen=True)
class _Part:
    """The shown source or target clients."""

    name: str
    size: int
    clients: list[AnyClient]
    counts: NDArray[np.float64]
    """(clients, classes) images; NaN if labels are unknown."""

    @property
    def rows(self) -> list[AnyClient]:
        """The clients in the contact sheet."""
        return [self.clients[number] for number in varied(self.clients, ROWS[self.name])]


def show(federated: Federated, path: str | PathLike[str]) -> None:
    """Write a PNG with samples of some clients, and the number of samples per client and class.

    Images are shown as they are, signals as lines, and tables as quantiles of each feature.

    It shows known labels of target clients, so it is for people only, like `TargetLabels`.

    >>> import os, tempfile
    >>> from ttpfl.data import federate
    >>> path = os.path.join(tempfile.mkdtemp(), "clients.png")
    >>> show(federate("digits", shift="domain", held_out="uci"), path)
    >>> os.listdir(os.path.dirname(path))
    ['clients.png']
    """
    parts, classes = _parts(federated), federated.population.info.classes
    map_width = min(max(4.0, 0.34 * len(classes)), 11.0)
    below = 0.35 + 0.075 * max(map(len, (*classes, *turned_names(federated.population.info))), default=0)
    body = _body(parts)
    width, height = LABELS + SHEET + BETWEEN + map_width + RIGHT, TOP + body + below
    figure = extra("matplotlib.figure").Figure((width, height), dpi=120, facecolor="white")
    for top, text, size, weight in (
        (0.2, _title(federated), 14, "bold"),
        (0.5, _subtitle(federated, parts), 10, "normal"),
    ):
        style = {"va": "top", "fontsize": size, "fontweight": weight, "parse_math": False}
        figure.text(0.25 / width, 1 - top / height, text, **style)

    def axes(left: float, top: float, wide: float, high: float) -> Any:
        bottom = height - TOP - top - high
        return figure.add_axes((left / width, bottom / height, wide / width, high / height))

    _draw_sheet(axes, parts)
    _draw_counts(axes, (LABELS + SHEET + BETWEEN, map_width, body), parts, classes)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_in_one_step(path) as file:
        figure.savefig(file, format="png")


def varied(clients: Sequence[Client], count: int) -> list[int]:
    """Indices of `count` clients that differ as much as possible in domain and corruption, in order.

    >>> from ttpfl.data import federate
    >>> source = federate("digits", shift="domain", held_out="uci").population.source
    >>> varied(source, 6)
    [0, 1, 10, 11, 20, 21]
    """
    seen: Counter[tuple[str, str | None]] = Counter()
    order = []
    for number, client in enumerate(clients):
        kind = (client.domain, client.corruption.name if client.corruption else None)
        order.append((seen[kind], number))
        seen[kind] += 1
    return sorted(number for _, number in sorted(order)[:count])


def _parts(federated: Federated) -> list[_Part]:
    population, target_labels, _ = federated
    classes, parts = len(population.info.classes), []
    groups: dict[str, Sequence[AnyClient]] = {"source": population.source, "target": population.target}
    for name, group in groups.items():
        numbers = np.unique(np.linspace(0, len(group) - 1, min(len(group), LISTED)).astype(int))
        if clients := [group[number] for number in numbers.tolist()]:
            counts = np.stack([_counts(client, target_labels, classes) for client in clients])
            parts.append(_Part(name, len(group), clients, counts))
    return parts


def _counts(client: AnyClient, target_labels: TargetLabels, classes: int) -> NDArray[np.float64]:
    if isinstance(client, TargetClient):
        labels = target_labels.of(client)
    else:
        labels = np.concatenate([client.train_labels, client.validation_labels])
    if labels is None:
        return np.full(classes, np.nan)
    return np.bincount(labels, minlength=classes).astype(np.float64)


def _title(federated: Federated) -> str:
    info, config = federated.population.info, federated.manifest.config
    if "shift" not in config:
        return info.title
    held_out = f" ({config['held_out']} held out)" if config["held_out"] else ""
    shift = "no shift" if config["shift"] == "none" else f"{config['shift']} shift"
    return f"{info.title} \N{EN DASH} {shift}{held_out}"


def _subtitle(federated: Federated, parts: list[_Part]) -> str:
    manifest, sizes = (
        federated.manifest,
        ", ".join(counted(part.size, f"{part.name} client") for part in parts),
    )
    return f"{manifest.data['name']}: {sizes}, seed {manifest.config['seed']}"


def _headings(parts: list[_Part]) -> float:
    return len(parts) * HEADING + (len(parts) - 1) * GAP


def _row(parts: list[_Part]) -> float:
    """Height of a row of the contact sheet."""
    rows = sum(len(part.rows) for part in parts)
    height, width = proportions(parts[0].clients[0].info)
    return min((BODY - _headings(parts)) / rows, SHEET / COLUMNS * height / width)


def _body(parts: list[_Part]) -> float:
    """Height of everything below the title: that of the contact sheet or of the heat map."""
    sheet = _row(parts) * sum(len(part.rows) for part in parts)
    counts = ROW * sum(len(part.clients) for part in parts)
    return min(BODY, _headings(parts) + max(sheet, counts, 2.5))


def _draw_sheet(axes: Axes, parts: list[_Part]) -> None:
    row, top = _row(parts), HEADING
    height, width = proportions(parts[0].clients[0].info)
    for part in parts:
        extent = row * len(part.rows)
        ax = axes(LABELS, top, min(SHEET, COLUMNS * row * width / height), extent)
        samples = [client.take(_shown(client)) for client in part.rows]
        centres, words = draw_samples(ax, samples, part.rows[0].info, COLUMNS)
        ax.set_yticks(centres, [_label(client) for client in part.rows], fontsize=8, parse_math=False)
        ax.set_xticks([])
        if part is parts[-1]:
            name_features(ax, part.rows[0].info)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        of = f"{len(part.rows)} of " if len(part.rows) < part.size else ""
        _heading(ax, f"{of}{counted(part.size, f'{part.name} client')}: {words}")
        top += extent + GAP + HEADING


def _shown(client: AnyClient) -> Ids:
    ids = client.ids if isinstance(client, TargetClient) else client.train_ids
    if not client.info.shape:
        return ids[:COLUMNS]
    count = COUNTED_SAMPLES if len(client.info.shape) == 1 else COLUMNS
    return np.sort(ids)[evenly(range(len(ids)), count)]  # as recorded; neighbours are alike


def _label(client: AnyClient) -> str:
    corruption = "{} {}".format(*client.corruption) if client.corruption else ""
    lines = dict.fromkeys((client.id, client.domain, corruption))  # the user's own clients are domains
    return "\n".join(filter(None, lines))


def _heading(ax: Any, text: str) -> None:
    ax.set_title(text, fontsize=10, loc="left", pad=4)


def _draw_counts(
    axes: Axes, place: tuple[float, float, float], parts: list[_Part], classes: tuple[str, ...]
) -> None:
    left, width, body = place
    space = body - _headings(parts)
    total = sum(len(part.clients) for part in parts)
    things = "samples" if parts[0].clients[0].info.shape else "images"
    several_domains = len({client.domain for part in parts for client in part.clients}) > 1
    shares = np.clip([len(part.clients) / total for part in parts], 0.15, 0.85)
    high = max((np.nanmax(part.counts, initial=1) for part in parts), default=1)
    colours = extra("matplotlib").colormaps["viridis"].with_extremes(bad="lightgray")
    scale = extra("matplotlib.colors").PowerNorm(0.5, 0, high)  # makes small numbers distinguishable
    top = HEADING
    for part, share in zip(parts, shares / shares.sum(), strict=True):
        ax = axes(left, top, width, space * share)
        extent = (-0.5, len(classes) - 0.5, part.size - 0.5, -0.5)
        image = ax.imshow(part.counts, colours, scale, aspect="auto", interpolation="nearest", extent=extent)
        unknown = ", gray: no labels" if np.isnan(part.counts).any() else ""
        _heading(ax, f"{part.name} clients: {things} of each class{unknown}")
        if total <= NAMED:
            names = [client.id for client in part.clients]
            ax.set_yticks(range(part.size), names, fontsize=6.5, parse_math=False)
        else:
            ticks = extra("matplotlib.ticker").MaxNLocator(integer=True, steps=[1, 2, 5, 10])
            ax.yaxis.set_major_locator(ticks)
            ax.tick_params("y", labelsize=8)
            ax.set_ylabel("client", fontsize=8)
        ax.tick_params("y", length=2)
        ax.set_xticks([])
        if total <= COUNTED and len(classes) <= NARROW:
            _write_counts(ax, part.counts, scale)
        if several_domains:
            _mark_domains(ax, part)
        top += space * share + GAP + HEADING
    size = min(9.0, 0.8 * 72 * width / len(classes))
    longest = max(map(len, classes))
    upright = longest <= SHORT or LETTER * longest * len(classes) <= width
    ax.set_xticks(
        range(len(classes)), classes, rotation=0 if upright else 90, fontsize=size, parse_math=False
    )
    bar = axes(left + width + 0.55, HEADING, 0.18, body - HEADING)
    ax.figure.colorbar(image, bar, label=things)


def _write_counts(ax: Any, counts: NDArray[np.float64], scale: Any) -> None:
    for (row, column), count in np.ndenumerate(counts):
        if not np.isnan(count):
            colour = "black" if scale(count) > 0.6 else "white"
            ax.text(column, row, f"{count:.0f}", ha="center", va="center", fontsize=6, color=colour)


def _mark_domains(ax: Any, part: _Part) -> None:
    """Draw lines between domains, and write their names at the side."""
    if any(client.domain == client.id for client in part.clients):
        return  # each of the user's own clients is a domain
    scale, start = part.size / len(part.clients), 0
    for domain, group in groupby(client.domain for client in part.clients):
        end = start + len(list(group))
        middle, edge = ((start + end) / 2 * scale - 0.5, end * scale - 0.5)
        if end < len(part.clients):
            ax.axhline(edge, color="white", linewidth=1.5)
        ax.annotate(
            domain, (1, middle), (6, 0), ("axes fraction", "data"), "offset points", rotation=270,
            ha="left", va="center", fontsize=9, parse_math=False, annotation_clip=False,
        )  # fmt: skip
        start = end
