"""MEMO: one gradient step for each image."""

from ttpfl.methods.memo.method import MEMO

__all__ = ["MEMO"]
