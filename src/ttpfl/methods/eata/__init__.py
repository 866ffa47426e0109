"""EATA: entropy minimisation on reliable and non-redundant samples, without forgetting."""

from ttpfl.methods.eata.method import EATA

__all__ = ["EATA"]
