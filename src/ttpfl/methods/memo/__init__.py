"""MEMO: one step for every image."""

from ttpfl.methods.memo.method import MEMO

__all__ = ["MEMO"]
