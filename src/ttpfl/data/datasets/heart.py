"""Heart disease: the tables of four hospitals."""

from pathlib import Path

import numpy as np

from ttpfl.data.client_arrays import ClientData
from ttpfl.data.csv_files import Table, read_csv
from ttpfl.data.images import DatasetInfo
from ttpfl.data.natural_clients import NaturalClients
from ttpfl.data.registry import dataset
from ttpfl.errors import DataError, DataMissingError

FOLDER = "heart-disease"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FEATURES = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg",
    "thalach", "exang", "oldpeak", "slope", "ca", "thal",
)  # fmt: skip
NEVER_ZERO = ("trestbps", "chol")
"""Of a living patient. Cholesterol is 0 instead of empty for all of Switzerland and a quarter of VA."""
LABEL = "num"  # 0 without disease, 1 to 4 with it

HEART = DatasetInfo(
    name="heart",
    title="UCI heart disease: patients of four hospitals",
    classes=("healthy", "ill"),
    domains=(),
    image_size=(0, 0),
    channels=f"{len(FEATURES)} features of a patient; missing ones get the source hospitals' mean",
    mean=(),
    std=(),
    licence="CC BY 4.0 (donation policy of UCI); the authors ask to be named (heart-disease.names)",
    homepage="https://archive.ics.uci.edu/dataset/45/heart+disease",
    instructions=f"{FOLDER}/processed.cleveland.data, .hungarian.data, .switzerland.data and .va.data",
    places=(f"{FOLDER}/processed.*.data",),
    samples=920,
    defaults={"folds": 4},
    natural=True,
    shape=(len(FEATURES),),
    features=FEATURES,
    missing="mean",
)


@dataset(HEART)
def heart(directory: Path) -> NaturalClients:
    """The patients of each hospital, in the order of its file."""
    paths = {name: directory / FOLDER / f"processed.{name}.data" for name in HOSPITALS}
    if missing := [path.name for path in paths.values() if not path.is_file()]:
        raise DataMissingError(f"there is no {', '.join(missing)} in {directory / FOLDER}")
    return NaturalClients({name: _patients(read_csv(path, _COLUMNS)) for name, path in paths.items()}, HEART)


_COLUMNS = (*FEATURES, LABEL)


def _patients(table: Table) -> ClientData:
    labels = table.numbers([LABEL])[:, 0]
    if np.isnan(labels).any():
        raise DataError(f"{table.path} has a patient without a diagnosis: get it again")
    values = table.numbers(FEATURES)
    for name in NEVER_ZERO:
        column = values[:, FEATURES.index(name)]
        column[column == 0] = np.nan
    return ClientData(values, (labels > 0).astype(np.int64))
