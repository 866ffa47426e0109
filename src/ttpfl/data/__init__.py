"""Data sets, and the user's own data, as plain arrays.

>>> from ttpfl import data
>>> images = data.load("digits")
>>> images.x.shape, images.info.domains
((9297, 28, 28, 3), ('mnist', 'uci', 'rendered', 'blended'))
"""

from ttpfl._moved import renamed
from ttpfl.data import datasets  # registers them
from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.clients import Population, SourceClient, TargetClient, TargetLabels
from ttpfl.data.datasets.huggingface import from_huggingface
from ttpfl.data.federate import Federated, federate, load_population
from ttpfl.data.images import DatasetInfo, Images
from ttpfl.data.natural_clients import NaturalClients, NaturalConfig
from ttpfl.data.population_config import PopulationConfig
from ttpfl.data.registry import dataset_info, is_there, load, names

__all__ = [
    "ClientArrays",
    "DatasetInfo",
    "Federated",
    "Images",
    "NaturalClients",
    "NaturalConfig",
    "Population",
    "PopulationConfig",
    "SourceClient",
    "TargetClient",
    "TargetLabels",
    "dataset_info",
    "datasets",
    "federate",
    "from_huggingface",
    "is_there",
    "load",
    "load_population",
    "names",
]

__getattr__ = renamed(__name__)
