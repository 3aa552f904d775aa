"""Assess, adapter layer: bytes at an offset, of a file or of memory. Never reads past what is there, never follows a link."""

from __future__ import annotations

import os
import stat
from typing import Protocol


class Blob(Protocol):
    """Something with a size that can be read in pieces."""

    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Return at most `count` bytes from `offset`; fewer at the end, none beyond it."""
        ...


class MemoryBlob:
    """Bytes in memory; `size` may be larger than what was kept."""

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self._data = data
        self.size = len(data) if size is None else size

    def read(self, offset: int, count: int) -> bytes:
        """Return the bytes that were kept."""
        return self._data[max(0, offset) : max(0, offset) + max(0, count)]


class FdBlob:
    """An open file by its descriptor, which its owner closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.size = os.fstat(fd).st_size

    def read(self, offset: int, count: int) -> bytes:
        """Read from the file."""
        if offset < 0 or offset >= self.size or count <= 0:
            return b""
        parts: list[bytes] = []
        while count > 0:
            part = os.pread(self._fd, min(count, 8 * 2**20), offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            count -= len(part)
        return b"".join(parts)


class FileBlob(FdBlob):
    """An open regular file.

    Raises:
        OSError: it cannot be opened, is a link, or is not a regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(0, "is not a regular file")
        super().__init__(fd)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> FileBlob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
