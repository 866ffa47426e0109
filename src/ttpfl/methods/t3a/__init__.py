"""T3A: a classifier of prototypes."""

from ttpfl.methods.t3a.method import T3A

__all__ = ["T3A"]
