"""What numpy's files say about themselves, before anything of that size is allocated."""

import math
import zipfile
from os import PathLike
from typing import IO

from numpy.lib import format as npy


def declared_size(stream: IO[bytes]) -> int:
    """The bytes of the array that a stream in numpy's format announces; a ValueError if it has no plain ones.

    >>> import io, numpy
    >>> file = io.BytesIO()
    >>> numpy.save(file, numpy.zeros((2, 3)))
    >>> declared_size(io.BytesIO(file.getvalue()))
    48
    """
    version = npy.read_magic(stream)
    if version not in _READERS:
        raise ValueError(f"version {version} of numpy's format is not read here")
    shape, _, dtype = _READERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return math.prod(shape) * int(dtype.itemsize)


_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def unpacked_size(path: str | PathLike[str] | IO[bytes]) -> int:
    """The bytes that all members of a zip archive say they have; a ValueError if they may unpack to more.

    For bz2 and LZMA Python unpacks all that it has read of a member, whatever size the archive states.
    """
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(
                    f"{member.filename} is packed with zip method {member.compress_type}, "
                    "but only stored and deflated members are read"
                )
        return sum(member.file_size for member in archive.infolist())


def check_npz(file: IO[bytes]) -> None:
    """Raise a ValueError unless every array in the archive has just the bytes that it announces.

    Then numpy allocates no more than there is, and reads to the end, where zip compares its checksum.
    """
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                announced = declared_size(stream) + stream.tell()
            if announced != member.file_size:
                raise ValueError(f"{member.filename} announces {announced} bytes but has {member.file_size}")
