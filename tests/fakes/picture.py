"""A PNG as colours, decoded without help: enough to tell whether a browser drew a page, and whether its style applied."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np


def pixels(path: Path) -> list[list[tuple[int, int, int]]]:
    """Return the rows of an 8-bit RGB or RGBA picture without interlacing. Source: the PNG specification, sections 5 and 9."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height, each = 8, b"", 0, 0, 3
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0)
            each = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    raw = zlib.decompress(packed)
    rows: list[list[tuple[int, int, int]]] = []
    above = bytes(width * each)
    for n in range(height):
        start = n * (width * each + 1)
        above = _unfiltered(raw[start], raw[start + 1 : start + 1 + width * each], above, each)
        rows.append([(above[x], above[x + 1], above[x + 2]) for x in range(0, width * each, each)])
    return rows


def _unfiltered(kind: int, line: bytes, above: bytes, each: int) -> bytes:
    if kind in (0, 1, 2):
        now = np.frombuffer(line, np.uint8).reshape(-1, each)
        if kind == 1:
            now = np.cumsum(now, axis=0, dtype=np.uint8)
        elif kind == 2:
            now = now + np.frombuffer(above, np.uint8).reshape(-1, each)
        return now.tobytes()
    out = bytearray(line)
    for i in range(len(out)):
        left, over, corner = (out[i - each], above[i], above[i - each]) if i >= each else (0, above[i], 0)
        if kind == 3:
            guess = (left + over) // 2
        else:
            a, b, c = abs(over - corner), abs(left - corner), abs(left + over - 2 * corner)
            guess = left if a <= b and a <= c else over if b <= c else corner
        out[i] = (out[i] + guess) & 255
    return bytes(out)
