"""T3A: a prototype classifier."""

from ttpfl.methods.t3a.method import T3A

__all__ = ["T3A"]
