"""One file per data set. Importing this package registers them all; none imports anything heavy."""

from ttpfl.data.datasets import (
    arrays,
    cifar,
    digits,
    digits5,
    ecg,
    fashion_mnist,
    folder,
    har,
    heart,
    pacs,
    spoken_digits,
    table,
    waves,
)

__all__ = [
    "arrays",
    "cifar",
    "digits",
    "digits5",
    "ecg",
    "fashion_mnist",
    "folder",
    "har",
    "heart",
    "pacs",
    "spoken_digits",
    "table",
    "waves",
]
