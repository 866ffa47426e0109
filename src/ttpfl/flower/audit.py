"""A site's audit log: one JSON line for every message in or out, never overwritten."""

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Message


class Audit:
    """An append-only file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, direction: str, message: Message, **more: Any) -> None:
        """Log a message (`in` or `out`) with the content or the hash of every record."""
        metadata = message.metadata
        self.write(
            {
                "direction": direction,
                "type": metadata.message_type,
                "run": str(metadata.run_id),
                "message": metadata.message_id,
                "reply_to": metadata.reply_to_message_id,
                **more,
                **_content(message),
            }
        )

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append one line, and return only when it is on disk."""
        # repr: records may hold bytes, and every message must be logged.
        line = (json.dumps({"time": datetime.now(UTC).isoformat(), **entry}, default=repr) + "\n").encode()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(descriptor, line) < len(line):  # on a full disk, a short write raises nothing
                raise OSError(errno.ENOSPC, "no space for a complete line", str(self._path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _content(message: Message) -> dict[str, Any]:
    if message.has_error():
        return {"error": message.error.reason}
    content = message.content
    plain: dict[str, Any] = {**content.config_records, **content.metric_records}
    records: dict[str, Any] = {name: dict(record) for name, record in plain.items()}
    for name, arrays in content.array_records.items():
        records[name] = {
            key: {
                "dtype": array.dtype,
                "shape": list(array.shape),
                "bytes": len(array.data),
                "sha256": hashlib.sha256(array.data).hexdigest(),
            }
            for key, array in arrays.items()
        }
    return {"records": records}
