"""Rules for `tunable(limit=...)`, by the names of version 0.1."""

from ttpfl.util.settings_kit import BOOLEAN as SWITCH
from ttpfl.util.settings_kit import FRACTION as SHARE
from ttpfl.util.settings_kit import NOT_NEGATIVE, NUMBER, POSITIVE, number, one_of
from ttpfl.util.settings_kit import STRING as TEXT
from ttpfl.util.settings_kit import Rule as Limit
from ttpfl.util.settings_kit import integer as whole_number

__all__ = [
    "NOT_NEGATIVE", "NUMBER", "POSITIVE", "SHARE", "SWITCH", "TEXT", "Limit", "number", "one_of",
    "whole_number",
]  # fmt: skip
