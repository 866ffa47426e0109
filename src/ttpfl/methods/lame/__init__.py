"""LAME: alike samples agree."""

from ttpfl.methods.lame.method import LAME

__all__ = ["LAME"]
