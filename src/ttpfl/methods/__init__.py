"""Test-time methods behind one small interface; one file or folder each."""

from ttpfl._moved import renamed
from ttpfl.methods import (  # noqa: F401  (importing registers)
    atp,
    bbse,
    bn_adapt,
    cotta,
    eata,
    em,
    fixed_rates,
    lame,
    memo,
    none,
    oftta,
    rdumb,
    rotta,
    sar,
    shot,
    surgical,
    t3a,
    tent,
)
from ttpfl.methods.base import Adapter, Method, SourceInfo, add, get, make, method, names, tunable

__all__ = ["Adapter", "Method", "SourceInfo", "add", "get", "make", "method", "names", "tunable"]

__getattr__ = renamed(__name__)
