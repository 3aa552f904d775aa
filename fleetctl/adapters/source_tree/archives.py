"""Assess, adapter layer: what lies in tar and zip archives. Never extracts, never follows a name out of the archive."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator

from fleetctl.adapters.source_tree.blob import Blob, MemoryBlob
from fleetctl.adapters.source_tree.bounds import Bounds, OverBound, Spent
from fleetctl.adapters.source_tree.classify import CLOSED, PACKAGE_LIST, TAR, TORCH, ZIP, classify, is_header_name
from fleetctl.adapters.source_tree.elf import MAGIC, marks_elf
from fleetctl.adapters.source_tree.packed import CHUNK, Member, Stream, members, safe_name
from fleetctl.assess.file_kinds import is_text_name
from fleetctl.domain.portability import ModelFile, Read, Skipped

Wanted = Callable[[str], bool]


def read_tar(path: str, stream: Stream, bounds: Bounds, spent: Spent, *, wanted: Wanted, system: Wanted, depth: int = 0) -> Iterator[Read]:
    """Yield what the members of a tar stream say.

    Args:
        wanted: tells by name whether a member is looked at; system: tells whether it belongs to the system or a package.
    """
    try:
        for member in members(stream, bounds, spent):
            if member.kind != "file":
                continue
            name = safe_name(member.name)
            if name is None:
                yield Skipped(path=path, reason="a member's name leaves the archive", hides=True)
                continue
            if wanted(name):
                yield from _member(f"{path}!{name}", name, member, stream, bounds, spent, system(name), depth)
    except OverBound as e:
        yield Skipped(path=path, reason=f"archive: {e}", hides=True)


def _member(
    path: str, name: str, member: Member, stream: Stream, bounds: Bounds, spent: Spent, installed: bool, depth: int
) -> Iterator[Read]:
    lower = name.lower()
    if CLOSED.search(lower):
        if not installed:
            yield Skipped(path=path, reason="a package or disk of a kind that is not opened", hides=True)
    elif is_text_name(lower) or PACKAGE_LIST.search(lower):
        if member.size <= bounds.text:
            yield from classify(path, MemoryBlob(stream.read(member.size)), bounds, installed=installed)
        elif not lower.endswith((".json", ".txt")) and not installed:
            yield Skipped(path=path, reason="larger than text may be", hides=True)
    elif is_header_name(lower):
        kept = stream.read(min(member.size, bounds.spool))
        if kept[:4] == MAGIC and member.size > len(kept):
            yield marks_elf(path, kept + _rest(stream, member.size - len(kept)), installed=installed)
        else:
            yield from classify(path, MemoryBlob(kept, member.size), bounds, installed=installed)
    elif (ZIP.search(lower) or TAR.search(lower)) and not installed:
        if depth >= bounds.nesting:
            yield Skipped(path=path, reason="archives nested too deeply", hides=True)
        elif member.size > bounds.spool:
            yield Skipped(path=path, reason="an archive inside an archive, larger than is kept", hides=True)
        else:
            yield from read_archive(path, MemoryBlob(stream.read(member.size)), bounds, spent, depth + 1)


def _rest(stream: Stream, size: int) -> bytes:
    """Return the last MiB of a member and every line of library names before it is dropped: where ELF keeps its names."""
    tail = b""
    while size > 0:
        part = stream.read(min(size, CHUNK))
        if not part:
            break
        size -= len(part)
        tail = (tail + part)[-(2**20) :]
    return tail


def read_archive(path: str, blob: Blob, bounds: Bounds, spent: Spent, depth: int = 0) -> Iterator[Read]:
    """Yield what a tar or zip archive holds, by its first bytes and not by its name."""
    if depth > bounds.nesting:
        yield Skipped(path=path, reason="archives nested too deeply", hides=True)
        return
    if blob.read(0, 4) in (b"PK\x03\x04", b"PK\x05\x06"):
        yield from _zip(path, blob, bounds, spent, depth)
        return
    if ZIP.search(path.lower()):
        yield Skipped(path=path, reason="not a zip archive, though its name says so", hides=True)
        return
    try:
        stream = Stream(blob, bounds, spent)
    except OverBound as e:
        yield Skipped(path=path, reason=f"archive: {e}", hides=True)
        return
    yield from read_tar(path, stream, bounds, spent, wanted=lambda n: True, system=lambda n: False, depth=depth)


class _Window(io.RawIOBase):
    """A blob as the seekable file that zipfile wants."""

    def __init__(self, blob: Blob) -> None:
        self._blob, self._at = blob, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self._at, 2: self._blob.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        count = self._blob.size - self._at if size < 0 else size
        data = self._blob.read(self._at, min(count, 64 * 2**20))
        self._at += len(data)
        return data


_BROKEN = (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, KeyError, OverflowError)


def _zip(path: str, blob: Blob, bounds: Bounds, spent: Spent, depth: int) -> Iterator[Read]:
    try:
        if _directory_size(blob) > bounds.zip_directory:
            raise OverBound("its list of members is larger than is read")
        with zipfile.ZipFile(_Window(blob)) as archive:
            entries = archive.infolist()
            if TORCH.search(path.lower()):
                yield from _torch(path, [e.filename for e in entries])
                return
            most = max(bounds.ratio_from, bounds.ratio * blob.size)
            before = spent.unpacked
            for entry in entries:
                spent.members += 1
                if spent.members > bounds.members:
                    raise OverBound(f"more than {bounds.members} members")
                if entry.is_dir() or (entry.external_attr >> 16) & 0o170000 == 0o120000:
                    continue
                name = safe_name(entry.filename)
                if name is None:
                    yield Skipped(path=path, reason="a member's name leaves the archive", hides=True)
                    continue
                yield from _entry(archive, entry, f"{path}!{name}", name, bounds, spent, depth, before + most)
    except OverBound as e:
        yield Skipped(path=path, reason=f"archive: {e}", hides=True)
    except _BROKEN as e:
        yield Skipped(path=path, reason=f"archive: damaged: {type(e).__name__}", hides=True)


def _directory_size(blob: Blob) -> int:
    """Return the bytes of a zip archive's list of members as its last record says, 0 where there is none. Source: APPNOTE.TXT 4.3.16."""
    tail = blob.read(max(0, blob.size - 65_557), 65_557)
    at = tail.rfind(b"PK\x05\x06")
    return int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0


def _entry(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: str, name: str, bounds: Bounds, spent: Spent, depth: int, most: int
) -> Iterator[Read]:
    lower = name.lower()
    nested = ZIP.search(lower) or TAR.search(lower)
    if CLOSED.search(lower):
        yield Skipped(path=path, reason="a package or disk of a kind that is not opened", hides=True)
    if not (is_text_name(lower) or is_header_name(lower) or nested):
        return
    try:
        with archive.open(entry) as file:
            data = file.read(bounds.text if is_text_name(lower) else bounds.spool)
    except _BROKEN as e:
        yield Skipped(path=path, reason=f"archive: damaged: {type(e).__name__}", hides=True)
        return
    spent.unpacked += len(data)
    if spent.unpacked > min(bounds.archive, most):
        raise OverBound(f"grows more than {bounds.ratio} times when unpacked")
    if nested:
        yield from read_archive(path, MemoryBlob(data), bounds, spent, depth + 1)
    elif data[:4] == MAGIC and entry.file_size > len(data):
        yield marks_elf(path, data, installed=False)
    else:
        yield from classify(path, MemoryBlob(data, max(len(data), entry.file_size)), bounds)


def _torch(path: str, names: list[str]) -> Iterator[Read]:
    """Tell compiled models from plain weights by the names in the archive; nothing is unpickled."""
    if any(n.endswith((".so", ".cubin")) or "/aotinductor/" in n for n in names):
        yield ModelFile(path=path, format="aotinductor", facts={"members": str(len(names))})
    elif any("/code/" in n or n.startswith("code/") for n in names):
        yield ModelFile(path=path, format="torchscript", facts={"members": str(len(names))})
