"""RoTTA: robust adaptation to temporally correlated streams."""

from ttpfl.methods.rotta.method import RoTTA

__all__ = ["RoTTA"]
