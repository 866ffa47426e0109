"""A site's own record of every message in and out: one JSON line each, never overwritten."""

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
    """Lines in a file that is only ever added to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, direction: str, message: Message, **more: Any) -> None:
        """A message `in` or `out`: who, what type, and every record with its content or its hash."""
        about = message.metadata
        self.write(
            {
                "direction": direction,
                "type": about.message_type,
                "run": str(about.run_id),
                "message": about.message_id,
                "reply_to": about.reply_to_message_id,
                **more,
                **_said(message),
            }
        )

    def write(self, entry: Mapping[str, Any]) -> None:
        """One line, on the disk before anything else happens."""
        # repr: records may hold bytes, and whatever comes has to be noted.
        text = json.dumps({"time": datetime.now(UTC).isoformat(), **entry}, default=repr) + "\n"
        line = text.encode()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(descriptor, line) < len(line):  # not an error by itself, where the disk gets full
                raise OSError(errno.ENOSPC, "there is no room for a line", str(self._path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _said(message: Message) -> dict[str, Any]:
    if message.has_error():
        return {"error": message.error.reason}
    content = message.content
    seen: dict[str, Any] = {name: dict(record) for name, record in content.config_records.items()}
    seen |= {name: dict(record) for name, record in content.metric_records.items()}
    for name, record in content.array_records.items():
        seen[name] = {
            key: {
                "dtype": array.dtype,
                "shape": list(array.shape),
                "bytes": len(array.data),
                "sha256": hashlib.sha256(array.data).hexdigest(),
            }
            for key, array in record.items()
        }
    return {"records": seen}
