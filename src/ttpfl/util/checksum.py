"""Checksums inside files: one rule for plain data and for tensors.

A checksum finds damage: flipped bits, cut ends, edits by hand. It is no signature: whoever writes files can
write a checksum, too.
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
    """SHA-256 over plain data, then over tensors in the order of their names."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, tensor in sorted((tensors or {}).items()):
        digest.update(name.encode())
        hash_tensor(digest, tensor)
    return digest.hexdigest()


def sealed(content: Mapping[str, Any], tensors: "Mapping[str, Tensor] | None" = None) -> dict[str, Any]:
    """Plain data as it comes back from JSON, with a checksum over it and the tensors it describes.

    >>> sealed({"accuracy": 0.607})["checksum"][:16]
    '4de688b1d28d78e1'
    """
    plain = json.loads(json.dumps(content))  # tuples are lists there, and all keys are texts
    return {**plain, CHECKSUM: checksum(plain, tensors)}


def is_sound(found: Any, tensors: "Mapping[str, Tensor] | None" = None) -> bool:
    """Whether `found` is what `sealed` made.

    >>> note = sealed({"accuracy": 0.607})
    >>> is_sound(note), is_sound({**note, "accuracy": 0.707})
    (True, False)
    """
    if not isinstance(found, Mapping) or CHECKSUM not in found:
        return False
    rest = {name: value for name, value in found.items() if name != CHECKSUM}
    try:
        return bool(found[CHECKSUM] == checksum(rest, tensors))
    except (RecursionError, ValueError):  # nothing that we would have written
        return False


@cache
def warn_of_old_format(place: str) -> None:
    """Say once that nobody can tell whether a file, or what is in a folder, is as it was written."""
    log.warning(
        "%s was written by an earlier version, without a checksum: damage to it would go unnoticed", place
    )


def hash_tensor(digest: "hashlib._Hash", tensor: "Tensor") -> None:
    """Feed dtype, shape and content of `tensor` to `digest`."""
    import torch  # seconds: whoever checks plain data does not wait for it

    tensor = tensor.detach().cpu()
    tensor = tensor if tensor.layout == torch.strided else tensor.to_dense()
    digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
