"""Limits on the size of a message, checked before any of it is decoded."""

from typing import Any

from flwr.app import RecordDict

from ttpfl.errors import RefusedError

WIDEST = 8
"""Bytes per number of the widest type."""

HEADER = 1024
"""Bytes that an array may take besides its numbers."""

OTHER = 2**20
"""Bytes that everything but the arrays of a message may take."""


def check_size(content: RecordDict, largest: int) -> None:
    """Refuse a message with over `largest` bytes of arrays or `OTHER` of all else; nothing is decoded."""
    arrays = [array for record in content.array_records.values() for array in record.values()]
    size = sum(len(array.data) for array in arrays)
    if size > largest + HEADER * len(arrays):
        raise RefusedError(f"the message has {size} bytes of arrays, above the limit of {largest}")
    plain: list[Any] = [*content.config_records.values(), *content.metric_records.values()]
    other = sum(len(name) + _length(value) for record in plain for name, value in record.items())
    if other + sum(len(array.dtype) + 8 * len(array.shape) for array in arrays) > OTHER:
        raise RefusedError(f"the message has more than {OTHER} bytes besides its arrays")


def _length(value: Any) -> int:
    """Approximate bytes of a plain value in a record."""
    if isinstance(value, (str, bytes)):
        return len(value)
    return sum(map(_length, value)) if isinstance(value, list) else 8
