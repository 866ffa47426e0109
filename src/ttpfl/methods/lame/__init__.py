"""LAME: similar samples get similar predictions."""

from ttpfl.methods.lame.method import LAME

__all__ = ["LAME"]
