"""Data sets, and the user's own data, as plain arrays.

>>> from ttpfl import data
>>> images = data.load("digits")
>>> images.x.shape, images.facts.domains
((9297, 28, 28, 3), ('mnist', 'uci', 'rendered', 'blended'))
"""

from ttpfl.data import datasets  # registers them
from ttpfl.data.client_arrays import ClientArrays
from ttpfl.data.datasets.huggingface import from_huggingface
from ttpfl.data.images import Facts, Images
from ttpfl.data.registry import facts, load, names

__all__ = ["ClientArrays", "Facts", "Images", "datasets", "facts", "from_huggingface", "load", "names"]
