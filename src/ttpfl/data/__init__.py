"""Data sets, and the user's own data, as plain arrays.

>>> from ttpfl import data
>>> images = data.load("digits")
>>> images.x.shape, images.facts.domains
((9297, 28, 28, 3), ('mnist', 'uci', 'rendered', 'blended'))
"""

from ttpfl.data import datasets  # registers them
from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.clients import Answers, Population, SourceClient, TargetClient
from ttpfl.data.datasets.huggingface import from_huggingface
from ttpfl.data.federate import Federated, federate, load_population
from ttpfl.data.images import Facts, Images
from ttpfl.data.registry import facts, is_there, load, names
from ttpfl.data.setting import Setting

__all__ = [
    "Answers",
    "ClientArrays",
    "Facts",
    "Federated",
    "Images",
    "Population",
    "Setting",
    "SourceClient",
    "TargetClient",
    "datasets",
    "facts",
    "federate",
    "from_huggingface",
    "is_there",
    "load",
    "load_population",
    "names",
]
