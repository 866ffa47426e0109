"""Sizes stated in numpy and zip files, checked before memory of that size is allocated."""

import math
import zipfile
from os import PathLike
from typing import IO

from numpy.lib import format as npy

_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def declared_size(stream: IO[bytes]) -> int:
    """Bytes of the array that the header of an npy stream declares; raise a ValueError for Python objects.

    >>> import io, numpy
    >>> file = io.BytesIO()
    >>> numpy.save(file, numpy.zeros((2, 3)))
    >>> declared_size(io.BytesIO(file.getvalue()))
    48
    """
    version = npy.read_magic(stream)
    if version not in _READERS:
        raise ValueError(f"version {version} of the npy format is not supported")
    shape, _, dtype = _READERS[version](stream)
    if dtype.hasobject:
        raise ValueError("it contains Python objects")
    return math.prod(shape) * int(dtype.itemsize)


def unpacked_size(path: str | PathLike[str] | IO[bytes]) -> int:
    """Bytes of all members of a zip archive as it states them; raise a ValueError if they may unpack to more.

    Python unpacks bz2 and LZMA members to any size, regardless of the stated one.
    """
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(
                    f"{member.filename} uses zip method {member.compress_type}: "
                    "only stored and deflated members are supported"
                )
        return sum(member.file_size for member in archive.infolist())


def check_npz(file: IO[bytes]) -> None:
    """Raise a ValueError unless every array in the archive has exactly the size that its header declares.

    Then numpy allocates no more than that, and reads to the end, where zip compares its checksum.
    """
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                declared = declared_size(stream) + stream.tell()
            if declared != member.file_size:
                raise ValueError(f"{member.filename} declares {declared} bytes but has {member.file_size}")
