"""One file per data set. Importing this package registers them all; none imports anything heavy."""

from ttpfl.data.datasets import arrays, cifar, digits, digits5, fashion_mnist, folder, pacs, table

__all__ = ["arrays", "cifar", "digits", "digits5", "fashion_mnist", "folder", "pacs", "table"]
