"""Logs and recordings, text layer: knows a place in a file again by what stood before it. Opens nothing."""

from __future__ import annotations

from typing import BinaryIO
from zlib import crc32

_MARKED = 256
"""Bytes before a place that its mark is made of: most of a line, which holds its time."""


def cut_mark(f: BinaryIO, offset: int) -> str:
    """Return a short hash of what stands before a byte of an open file; "" at its beginning.

    Args:
        offset: bytes from the beginning, 0 or more.
    """
    if not offset:
        return ""
    begin = max(0, offset - _MARKED)
    f.seek(begin)
    return f"{crc32(f.read(offset - begin)):08x}"
