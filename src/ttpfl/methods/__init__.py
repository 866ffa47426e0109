"""Test-time methods behind one small interface; each has a file of its own."""

from ttpfl.methods import atp, bbse, em, lame, memo, none, t3a  # noqa: F401  (they register)
from ttpfl.methods.base import Knowledge, Method, Personal, add, get, make, method, names, tunable

__all__ = ["Knowledge", "Method", "Personal", "add", "get", "make", "method", "names", "tunable"]
