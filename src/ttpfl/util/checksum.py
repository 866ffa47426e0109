"""Checksums in files, over plain data and tensors.

A checksum detects damage: flipped bits, truncation, manual edits. It is not a signature: anyone who can write
the file can write a checksum.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("ttpfl")

CHECKSUM = "checksum"


def checksum(content: Any, tensors: "Mapping[str, Tensor] | None" = None) -> str:
    """SHA-256 over plain data, then over tensors, sorted by name."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, tensor in sorted((tensors or {}).items()):
        digest.update(name.encode())
        hash_tensor(digest, tensor)
    return digest.hexdigest()


def sealed(content: Mapping[str, Any], tensors: "Mapping[str, Tensor] | None" = None) -> dict[str, Any]:
    """Return plain data as JSON represents it, with a checksum over it and the tensors it describes.

    >>> sealed({"accuracy": 0.607})["checksum"][:16]
    '4de688b1d28d78e1'
    """
    plain = json.loads(json.dumps(content))  # turns tuples into lists and keys into strings
    return {**plain, CHECKSUM: checksum(plain, tensors)}


def is_sound(content: Any, tensors: "Mapping[str, Tensor] | None" = None) -> bool:
    """Whether the checksum added by `sealed` matches.

    >>> note = sealed({"accuracy": 0.607})
    >>> is_sound(note), is_sound({**note, "accuracy": 0.707})
    (True, False)
    """
    if not isinstance(content, Mapping) or CHECKSUM not in content:
        return False
    plain = {name: value for name, value in content.items() if name != CHECKSUM}
    try:
        return bool(content[CHECKSUM] == checksum(plain, tensors))
    except (RecursionError, ValueError):  # not written by `sealed`
        return False


@cache
def warn_of_old_format(place: str) -> None:
    """Warn once that a file or folder has no checksum."""
    log.warning("%s was written by an earlier version, without a checksum: damage would go unnoticed", place)


def hash_tensor(digest: "hashlib._Hash", tensor: "Tensor") -> None:
    """Add dtype, shape and content of `tensor` to `digest`."""
    import torch  # takes seconds, which checksums of plain data do not need

    tensor = tensor.detach().cpu()
    tensor = tensor if tensor.layout == torch.strided else tensor.to_dense()
    digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
