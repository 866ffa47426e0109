"""EATA: efficient test-time adaptation without forgetting."""

from ttpfl.methods.eata.method import EATA

__all__ = ["EATA"]
