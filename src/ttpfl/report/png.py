"""Images inside the page."""

import base64
import binascii
import struct
import zlib

from ttpfl.errors import ReportError


def png_address(rgb: str, height: int, width: int) -> str:
    """The data URL of a PNG. `rgb` is the base64 of height x width x 3 bytes.

    >>> png_address(base64.b64encode(bytes(12)).decode(), 2, 2)[:30]
    'data:image/png;base64,iVBORw0K'
    """
    try:
        pixels = base64.b64decode(rgb, validate=True)
    except binascii.Error as error:
        raise ReportError(f"an image in samples.json is not base64 ({error}): run the recipe again") from None
    if len(pixels) != height * width * 3 or not pixels:
        raise ReportError(
            f"an image in samples.json has {len(pixels)} bytes, but its size {height} x {width} needs "
            f"{height * width * 3}: run the recipe again"
        )
    return "data:image/png;base64," + base64.b64encode(_png(pixels, height, width)).decode()


def _png(pixels: bytes, height: int, width: int) -> bytes:
    row = 3 * width
    filtered = b"".join(b"\0" + pixels[row * y : row * (y + 1)] for y in range(height))  # 0: unfiltered
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
