"""RoTTA: for streams whose order is correlated, such as one class after the other."""

from ttpfl.methods.rotta.method import RoTTA

__all__ = ["RoTTA"]
