"""Assess, adapter layer: compressed streams and tar members, read in one pass. Never writes a file, never holds more than one member.

Own tar reader: it must survive archives that lie about sizes, names and counts, with a bound on every header.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from fleetctl.adapters.source_tree.blob import Blob
from fleetctl.adapters.source_tree.bounds import MIB, Bounds, OverBound, Spent

CHUNK = 256 * 1024
MOST_NAME = 64 * 1024
_LZMA_MEMORY = 256 * MIB
ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW = 128 * MIB
"""Memory that a frame may ask for. Source: what `zstd -d` itself allows without --long (RFC 8878 asks readers for 8 MiB)."""
NO_ZSTD = "compressed with zstd, which needs: pip install 'fleetctl[images]'"


class _Decompressor(Protocol):
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Stream:
    """Decompressed bytes of a part of a blob, counted against the bounds.

    Raises:
        OverBound: too much came out, or it is damaged.
    """

    def __init__(self, blob: Blob, bounds: Bounds, spent: Spent, start: int = 0, size: int | None = None) -> None:
        self._blob, self._bounds, self._spent = blob, bounds, spent
        self._at, self._end = start, start + (blob.size - start if size is None else size)
        self._start = start
        self._out = 0
        self._ready = b""
        self._watch: Callable[[bytes], None] = lambda data: None
        head = blob.read(start, 6)
        self.is_packed = True
        self._new: Callable[[], _Decompressor] | None
        if head[:2] == b"\x1f\x8b":
            self._new = lambda: _Zlib()
        elif head[:3] == b"BZh":
            self._new = lambda: bz2.BZ2Decompressor()
        elif head[:6] == b"\xfd7zXZ\x00":
            self._new = lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY)
        else:
            self._new = None
            self.is_packed = head[:4] == ZSTD
        self._zstd = _zstd_reader(self) if head[:4] == ZSTD else None
        self._engine: _Decompressor | None = self._new() if self._new else None

    def watch_packed(self, watch: Callable[[bytes], None]) -> None:
        """Hand every byte that is read from the blob to `watch`, for a digest."""
        self._watch = watch

    def read(self, count: int) -> bytes:
        """Return exactly `count` bytes, fewer at the end."""
        parts: list[bytes] = []
        while count > 0:
            if not self._ready and not self._fill():
                break
            part, self._ready = self._ready[:count], self._ready[count:]
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def skip(self, count: int) -> bool:
        """Pass by `count` bytes; tell whether they were there."""
        while count > 0:
            part = self.read(min(count, CHUNK))
            if not part:
                return False
            count -= len(part)
        return True

    def packed(self, count: int) -> bytes:
        """Return at most `count` bytes as they are in the blob, and pass by them."""
        data = self._blob.read(self._at, min(count, CHUNK, self._end - self._at))
        self._at += len(data)
        self._watch(data)
        return data

    def _fill(self) -> bool:
        if self._zstd is not None:
            self._ready = self._zstd()
            self._count(len(self._ready))
            return bool(self._ready)
        while True:
            data = b""
            if self._engine is None or getattr(self._engine, "needs_input", True):
                data = self.packed(CHUNK)
                if not data:
                    return False
            if self._engine is None:
                out = data
            else:
                try:
                    out = self._engine.decompress(data, CHUNK)
                except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as e:
                    raise OverBound(f"damaged: {type(e).__name__}") from None
                if getattr(self._engine, "eof", False):
                    rest = getattr(self._engine, "unused_data", b"")
                    self._at -= len(rest)
                    self._engine = self._new() if self._new and self._at < self._end and self._blob.read(self._at, 1) != b"\0" else None
                    if self._engine is None:
                        self._end = self._at
            self._count(len(out))
            if out:
                self._ready = out
                return True

    def _count(self, came: int) -> None:
        self._out += came
        self._spent.unpacked += came
        if self._spent.unpacked > self._bounds.archive:
            raise OverBound(f"more than {self._bounds.archive // MIB} MiB come out of it")
        if self._out > self._bounds.ratio_from and self._out > self._bounds.ratio * max(1, self._at - self._start):
            raise OverBound(f"grows more than {self._bounds.ratio} times when unpacked")


class _Pulled(io.RawIOBase):
    """A stream's packed bytes as the file that zstandard reads."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._stream.packed(CHUNK if size < 0 else size)


def _zstd_reader(stream: Stream) -> Callable[[], bytes]:
    """Return what gives the next piece of a zstd stream, b"" at its end; the package that reads it is loaded here and nowhere else."""
    if find_spec("zstandard") is None:
        raise OverBound(NO_ZSTD)
    zstandard: Any = import_module("zstandard")
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(
        _Pulled(stream), read_size=CHUNK, read_across_frames=True
    )

    def read() -> bytes:
        try:
            return bytes(reader.read(CHUNK))
        except (zstandard.ZstdError, MemoryError) as e:
            raise OverBound(f"damaged: {type(e).__name__}") from None

    return read


class _Zlib:
    """gzip members by zlib, with the interface of the other decompressors."""

    def __init__(self) -> None:
        self._engine = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._engine.eof

    @property
    def unused_data(self) -> bytes:
        return self._engine.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._engine.decompress(self._engine.unconsumed_tail + data, max_length)
        self.needs_input = not self._engine.unconsumed_tail
        return out


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive; `offset` is where its bytes begin in the unpacked stream."""

    name: str
    size: int
    kind: str
    offset: int


def safe_name(raw: str) -> str | None:
    """Return a member's name without a leading slash or dot; None for one that leaves the archive."""
    parts = [p for p in raw.replace("\\", "/").split("/") if p not in ("", ".")]
    if not parts or ".." in parts or "\0" in raw or len(raw) > 4096:
        return None
    return "/".join(parts)


def members(stream: Stream, bounds: Bounds, spent: Spent) -> Iterator[Member]:
    """Yield the members of a tar stream; whoever takes one may read up to its size from the stream before the next.

    Raises:
        OverBound: a header lies, or there are too many members.
    """
    position = 0
    long_name, extended = "", {}
    while True:
        block = stream.read(512)
        position += len(block)
        if len(block) < 512:
            raise OverBound("cut off before its end")
        if not block.strip(b"\0"):
            return
        if not _checks(block):
            raise OverBound("not a tar archive, or damaged")
        size, kind = _number(block[124:136]), chr(block[156])
        spent.members += 1
        if spent.members > bounds.members:
            raise OverBound(f"more than {bounds.members} members")
        if kind in "LKxg":
            if size > MIB:
                raise OverBound("a header of more than 1 MiB")
            data = stream.read(size)
            stream.skip(-size % 512)
            position += size + -size % 512
            if kind == "L":
                long_name = data[:MOST_NAME].rstrip(b"\0").decode("utf-8", "replace")
            elif kind == "x":
                extended = _extended(data)
            continue
        name = extended.get("path") or long_name or _ustar_name(block)
        if extended.get("size", "").isdigit():
            size = int(extended["size"][:18])
        long_name, extended = "", {}
        length = size if kind in "0\07S" else 0
        member = Member(name, length, "file" if kind in "0\0" else "link" if kind in "12" else "other", position)
        taken = _Taken(stream, length)
        yield member
        if not stream.skip(taken.left()):
            raise OverBound("cut off in a member")
        stream.skip(-length % 512)
        position += length + -length % 512


class _Taken:
    """Knows how much of a member its taker has read, by the stream's own count."""

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream, self._size = stream, size
        self._before = stream._out - len(stream._ready)

    def left(self) -> int:
        return max(0, self._size - (self._stream._out - len(self._stream._ready) - self._before))


def _checks(block: bytes) -> bool:
    stored = _number(block[148:156])
    return stored == sum(block[:148]) + 8 * 32 + sum(block[156:])


def _number(field: bytes) -> int:
    if field and field[0] & 0x80:
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        if value > 2**50:
            raise OverBound("a size that cannot be")
        return value
    text = field.split(b"\0")[0].strip()
    if not text:
        return 0
    try:
        return int(text, 8)
    except ValueError:
        raise OverBound("not a tar archive, or damaged") from None


def _ustar_name(block: bytes) -> str:
    name = block[:100].split(b"\0")[0]
    prefix = block[345:500].split(b"\0")[0] if block[257:262] == b"ustar" else b""
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "replace")


def _extended(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(data) and len(found) < 100:
        space = data.find(b" ", at, at + 20)
        if space < 0 or not data[at:space].isdigit():
            break
        length = int(data[at:space])
        if length <= space - at:
            break
        key, _, value = data[space + 1 : at + length - 1].partition(b"=")
        found[key.decode("utf-8", "replace")[:100]] = value.decode("utf-8", "replace")[:MOST_NAME]
        at += length
    return found
