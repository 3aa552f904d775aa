"""Assess, adapter layer: a path in, what was read of it out: file, folder, archive or image. Never follows links, never writes."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from fleetctl.adapters.source_tree.archives import read_archive
from fleetctl.adapters.source_tree.blob import Blob, FdBlob, FileBlob, MemoryBlob
from fleetctl.adapters.source_tree.bounds import Bounds, OverBound, Spent
from fleetctl.adapters.source_tree.classify import CLOSED, TAR, TORCH, ZIP, classify, is_header_name
from fleetctl.adapters.source_tree.images import read_layout, read_saved
from fleetctl.adapters.source_tree.packed import CHUNK, ZSTD, Stream, members, safe_name
from fleetctl.assess.file_kinds import is_text_name
from fleetctl.domain.portability import Read, Skipped

NOT_LOOKED_INTO = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache", ".fleetctl"})
MOST_INDEXED = 20_000
PARTS_OF_LAYOUT = frozenset({"oci-layout", "index.json", "blobs"})
PACKED = (".gz", ".bz2", ".xz", ".zst")
_OF_IMAGE = re.compile(r"(?:blobs/|(?:manifest|index)\.json\Z|oci-layout\Z|repositories\Z|[0-9a-f]{64}(?:\.json\Z|/))")
"""Names that an image archive begins with, in whichever order its writer puts them."""


class _Part:
    """A piece of a blob as a blob of its own."""

    def __init__(self, blob: Blob, start: int, size: int) -> None:
        self._blob, self._start, self.size = blob, start, size

    def read(self, offset: int, count: int) -> bytes:
        if offset < 0 or offset >= self.size:
            return b""
        return self._blob.read(self._start + offset, min(count, self.size - offset))


def is_layout(names: set[str]) -> bool:
    """Tell whether a folder with these names is an image layout: two of the three names that a layout has, whatever is in them."""
    return len(PARTS_OF_LAYOUT & names) >= 2


def is_saved(names: set[str]) -> bool:
    """Tell whether a folder with these names is what `docker save` wrote, unpacked: its manifest and folders of layers, nothing else."""
    rest = names - {"manifest.json", "repositories", "oci-layout", "index.json", "blobs"}
    return "manifest.json" in names and bool(rest) and all(_OF_IMAGE.match(f"{n}/") or _OF_IMAGE.match(n) for n in rest)


def inner_name(name: str) -> str:
    """Return the name of what a packed file holds: its own without the last ending."""
    ending = next((e for e in PACKED if name.lower().endswith(e)), "")
    return name[: len(name) - len(ending)]


def is_worth_reading(lower: str) -> bool:
    """Tell whether a file of this name says something about a move."""
    return is_text_name(lower) or is_header_name(lower) or bool(TAR.search(lower) or ZIP.search(lower) or TORCH.search(lower))


class SourceTreeReader:
    """Reads what a person points at; implements the port SourceTree."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()

    def read(self, path: Path) -> Iterator[Read]:
        """Yield what lies at a path; what cannot be read is yielded as Skipped, with its reason."""
        spent = Spent()
        root = os.path.realpath(path)
        if os.path.isdir(root):
            yield from self._folder(root, spent)
        else:
            name = os.path.basename(root)
            shown = name.encode("utf-8", "replace").decode("utf-8")
            yield from self._file(root, shown, spent, alone=True, keep=shown == name)

    def _folder(self, root: str, spent: Spent) -> Iterator[Read]:
        waiting: list[tuple[str, str, int, bool]] = [(root, "", 0, True)]
        while waiting:
            folder, shown, depth, is_exact = waiting.pop()
            if depth > self._bounds.depth:
                yield Skipped(path=shown, reason="folders nested too deeply", hides=True)
                continue
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda e: e.name)
            except OSError as e:
                yield Skipped(path=shown or ".", reason=f"folder cannot be read: {e.strerror}", hides=True)
                continue
            names = {e.name for e in entries}
            of_image: frozenset[str] = frozenset()
            if is_layout(names) or is_saved(names):
                of_image = PARTS_OF_LAYOUT if is_layout(names) else frozenset(names)
                yield from self._layout(folder, shown or os.path.basename(root), spent, saved=not is_layout(names))
            for entry in entries:
                if entry.name in of_image:
                    continue
                name = f"{shown}/{entry.name}" if shown else entry.name
                exact = is_exact and name == name.encode("utf-8", "replace").decode("utf-8")
                name = name.encode("utf-8", "replace").decode("utf-8")
                try:
                    is_link, is_folder = entry.is_symlink(), entry.is_dir(follow_symlinks=False)
                except OSError as e:
                    yield Skipped(path=name, reason=f"cannot be looked at: {e.strerror}", hides=True)
                    continue
                if is_link:
                    yield from self._link(entry, name, root)
                elif is_folder:
                    if entry.name not in NOT_LOOKED_INTO:
                        waiting.append((entry.path, name, depth + 1, exact))
                else:
                    spent.files += 1
                    if spent.files > self._bounds.files:
                        yield Skipped(path=shown or ".", reason=f"more than {self._bounds.files} files", hides=True)
                        return
                    yield from self._file(entry.path, name, spent, keep=exact)

    @staticmethod
    def _link(entry: os.DirEntry[str], name: str, root: str) -> Iterator[Read]:
        """Yield a link that leads out of what is read; what it leads to inside is read where it lies."""
        target = os.path.realpath(entry.path)
        lower = name.lower()
        if target == root or target.startswith(f"{root}{os.sep}"):
            if os.path.exists(target):
                if is_worth_reading(lower) and not os.path.isdir(target):
                    yield Skipped(path=name, reason="a symbolic link to what is read where it lies", elsewhere=True)
                return
        elif os.path.isdir(target) or is_worth_reading(lower):
            yield Skipped(path=name, reason="a symbolic link that leads out, not followed", hides=True)
            return
        if is_worth_reading(lower):
            yield Skipped(path=name, reason="a symbolic link to nothing")

    def _file(self, path: str, shown: str, spent: Spent, *, alone: bool = False, keep: bool) -> Iterator[Read]:
        lower = shown.lower()
        is_archive = bool(TAR.search(lower) or ZIP.search(lower))
        if CLOSED.search(lower):
            yield Skipped(path=shown, reason="a package or disk of a kind that is not opened", hides=True)
            return
        if not (alone or is_worth_reading(lower) or lower.endswith(PACKED)):
            return
        try:
            with FileBlob(path) as blob:
                if is_archive or (TORCH.search(lower) and blob.read(0, 2) == b"PK") or self._may_be_packed(lower, blob, alone=alone):
                    yield from self._archive(shown, blob, spent)
                else:
                    yield from classify(shown, blob, self._bounds, keep=keep)
        except OSError as e:
            yield Skipped(path=shown, reason=f"cannot be read: {e.strerror}", hides=True)

    def _may_be_packed(self, lower: str, blob: Blob, *, alone: bool) -> bool:
        """Tell whether a file whose name does not say so is an archive: all that a person names, and blobs without an ending."""
        if alone or lower.endswith(PACKED):
            return self._is_packed(blob)
        return "." not in lower.rpartition("/")[2] and self._is_packed(blob)

    @staticmethod
    def _is_packed(blob: Blob) -> bool:
        head = blob.read(0, 512)
        return (
            head[:2] in (b"\x1f\x8b", b"PK")
            or head[:3] == b"BZh"
            or head[:6] == b"\xfd7zXZ\x00"
            or head[:4] == ZSTD
            or head[257:262] == b"ustar"
        )

    def _archive(self, shown: str, blob: Blob, spent: Spent) -> Iterator[Read]:
        lower = shown.lower()
        if not (TAR.search(lower) or ZIP.search(lower) or TORCH.search(lower)):
            is_data = lower.endswith(PACKED) and not is_worth_reading(inner_name(lower))
            if self._holds_one_file(blob, unless_damaged=is_data):
                yield from self._packed_file(shown, blob, spent)
                return
        if self._is_packed_image(blob):
            yield from self._packed_image(shown, blob, spent)
            return
        index = self._index(blob, spent)
        if index is None:
            yield from read_archive(shown, blob, self._bounds, spent)
            return
        yield from self._image(shown, blob, index, spent)

    def _holds_one_file(self, blob: Blob, *, unless_damaged: bool) -> bool:
        """Tell whether this is one packed file and no packed archive."""
        try:
            stream = Stream(blob, self._bounds, Spent())
            return stream.is_packed and stream.read(512)[257:262] != b"ustar"
        except OverBound:
            return unless_damaged

    def _packed_file(self, shown: str, blob: Blob, spent: Spent) -> Iterator[Read]:
        """Read one packed file, where its name without the last ending says that it matters."""
        inner = inner_name(shown)
        if inner == shown or not is_worth_reading(inner.lower()):
            return
        try:
            data = Stream(blob, self._bounds, spent).read(self._bounds.spool)
        except OverBound as e:
            yield Skipped(path=shown, reason=f"packed file: {e}", hides=True)
            return
        yield from classify(f"{shown}!{inner.rpartition('/')[2]}", MemoryBlob(data), self._bounds)

    def _is_packed_image(self, blob: Blob) -> bool:
        """Tell whether this is a compressed tar archive whose first file belongs to an image."""
        try:
            stream = Stream(blob, self._bounds, Spent())
            if not stream.is_packed:
                return False
            first = next((m for m in members(stream, self._bounds, Spent()) if m.kind == "file"), None)
        except OverBound:
            return False
        return first is not None and _OF_IMAGE.match(safe_name(first.name) or "") is not None

    def _packed_image(self, shown: str, blob: Blob, spent: Spent) -> Iterator[Read]:
        """Read an image archive that is compressed as a whole, unpacked into a file without a name: its parts refer back and forth."""
        with tempfile.TemporaryFile(prefix="fl-image-") as file:
            most = min(self._bounds.unpacked_image, shutil.disk_usage(tempfile.gettempdir()).free // 2)
            size = 0
            try:
                stream = Stream(blob, self._bounds, spent)
                while part := stream.read(CHUNK):
                    size += len(part)
                    if size > most:
                        raise OverBound(f"larger than {most // 2**20} MiB unpacked: decompress it first")
                    file.write(part)
                file.flush()
            except (OverBound, OSError) as e:
                yield Skipped(path=shown, reason=f"image archive: {e}", hides=True)
                return
            inner = FdBlob(file.fileno())
            index = self._index(inner, spent)
            if index is None:
                yield from read_archive(shown, inner, self._bounds, spent)
            else:
                yield from self._image(shown, inner, index, spent)

    def _image(self, shown: str, blob: Blob, index: dict[str, tuple[int, int]], spent: Spent) -> Iterator[Read]:

        def open_(name: str) -> Blob | None:
            place = index.get(name)
            return None if place is None else _Part(blob, *place)

        if "manifest.json" in index:
            yield from read_saved(shown, open_, self._bounds, spent)
        else:
            yield from read_layout(shown, open_, self._bounds, spent)

    def _index(self, blob: Blob, spent: Spent) -> dict[str, tuple[int, int]] | None:
        """Return where the members of an image archive lie; None for an archive that is compressed or no image."""
        found: dict[str, tuple[int, int]] = {}
        try:
            stream = Stream(blob, self._bounds, Spent())
            if stream.is_packed or blob.read(257, 5) != b"ustar":
                return None
            for member in members(stream, self._bounds, Spent()):
                name = safe_name(member.name)
                if name is not None and member.kind == "file":
                    found[name] = (member.offset, member.size)
                if len(found) > MOST_INDEXED:
                    return None
        except OverBound:
            return None
        return found if "manifest.json" in found or "oci-layout" in found else None

    def _layout(self, folder: str, shown: str, spent: Spent, *, saved: bool) -> Iterator[Read]:
        with ExitStack() as stack:

            def open_(name: str) -> Blob | None:
                inner = safe_name(name)
                if inner is None:
                    return None
                try:
                    return stack.enter_context(FileBlob(os.path.join(folder, inner)))
                except OSError:
                    return None

            yield from (read_saved if saved else read_layout)(shown, open_, self._bounds, spent)
