"""The user's own table: a CSV file with a row per sample, and the site of each."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ttpfl.data.client_arrays import completed, own_info
from ttpfl.data.csv_files import EMPTY, read_csv
from ttpfl.data.natural_clients import UNKNOWN, NaturalClients, by_client
from ttpfl.data.option_types import Columns, FileName, Missing, Name, Names
from ttpfl.data.registry import dataset
from ttpfl.errors import DataError, DataMissingError
from ttpfl.util.settings_kit import check_known

FILE = "table.csv"

TABLE = own_info(
    name="table",
    title="Your own table, in a CSV file with a column of sites",
    channels="yours, one per feature",
    licence="yours",
    instructions="your table as table.csv (a row per sample; a column site, a column label, which may be "
    "empty, and numbers in all others; the options file, site, label and features name another file or "
    "other columns)",
    places=(FILE,),
    natural=True,
)


@dataset(TABLE)
def table(
    directory: Path,
    file: FileName = FILE,
    site: Name = "site",
    label: Name = "label",
    features: Columns = None,
    classes: Names = None,
    missing: Missing = "error",
) -> NaturalClients:
    """The rows of each site in their order.

    `site` and `label` name their columns, `features` those of the inputs, by default all others. `classes`
    lists the labels in order; by default they are sorted, by number if they are numbers.
    """
    path = directory / (file or FILE)
    if not path.is_file():
        raise DataMissingError(f"there is no {path.name} in {directory}")
    rows = read_csv(path)
    sites, labels = rows.text(site, "site"), rows.text(label, "label")
    if not sites:
        raise DataError(f"{path} has no rows: add one per sample")
    names = list(features) if features else [name for name in rows.columns if name not in (site, label)]
    if not names:
        raise DataError(f"{path} has no features, only {site} and {label}: add a column of numbers")
    if "" in sites:
        row = sites.index("") + 1
        raise DataError(f"row {row} of {path} has no {site}: fill it in, or leave the row out")
    values = rows.numbers(names)
    if missing == "error" and np.isnan(values).any():
        row, column = np.argwhere(np.isnan(values))[0].tolist()
        raise DataError(
            f"column {names[column]!r} of {path} is empty in row {row + 1}: fill it in, or pass the option "
            "missing=mean"
        )
    known = tuple(classes) if classes else _sorted({text for text in labels if text not in EMPTY})
    numbers = {name: number for number, name in enumerate(known)} | dict.fromkeys(EMPTY, UNKNOWN)
    for row, text in enumerate(labels, start=1):
        if text not in numbers:
            check_known("label", text, known, DataError, f"in row {row} of {path.name}")
    y = np.array([numbers[text] for text in labels], np.int64)
    clients = by_client(values, y, np.array(sites))
    info = replace(TABLE, missing=missing, features=tuple(names))
    return NaturalClients(clients, completed(info, clients.values(), known))


def _sorted(names: set[str]) -> tuple[str, ...]:
    """Names of classes in order; numbers by value.

    >>> _sorted({"10", "9"}), _sorted({"no", "yes", "10"})
    (('9', '10'), ('10', 'no', 'yes'))
    """
    return tuple(sorted(names, key=int if all(name.isdecimal() for name in names) else None))
