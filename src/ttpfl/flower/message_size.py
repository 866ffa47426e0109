"""How large a message may be: looked at before anything of it is decoded."""

from typing import Any

from flwr.app import RecordDict

from ttpfl.errors import RefusedError

WIDEST = 8
"""Bytes of a number of the widest type."""

HEADER = 1024
"""Bytes that an array may take beside its numbers."""

WORDS = 2**20
"""Bytes that everything but arrays may take in a message."""


def check_size(content: RecordDict, largest: int) -> None:
    """Raise a RefusedError if a message is larger than its arrays may be; nothing of it is decoded for that.

    Args:
        content: of the message.
        largest: bytes of all arrays together; everything else may have `WORDS` bytes.
    """
    arrays = [array for record in content.array_records.values() for array in record.values()]
    size = sum(len(array.data) for array in arrays)
    if size > largest + HEADER * len(arrays):
        raise RefusedError(
            f"the message has arrays of {size} bytes, more than the {largest} that are allowed"
        )
    plain = [dict(record) for record in content.config_records.values()]
    plain += [dict(record) for record in content.metric_records.values()]
    words = sum(len(name) + _length(value) for record in plain for name, value in record.items())
    if words + sum(len(array.dtype) + 8 * len(array.shape) for array in arrays) > WORDS:
        raise RefusedError(f"the message has more than {WORDS} bytes beside its arrays")


def _length(value: Any) -> int:
    """Roughly the bytes of a plain value in a record."""
    if isinstance(value, (str, bytes)):
        return len(value)
    return sum(map(_length, value)) if isinstance(value, list) else 8
