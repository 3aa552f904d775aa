"""Assess, ports layer: what reads trees and images, what compiles them on trial, what writes a translated copy. Never an implementation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from fleetctl.domain.portability import ProbeResult, Read


class SourceTree(Protocol):
    """Reads what a person points at and runs nothing of it. Bounded in size, depth, count and growth."""

    def read(self, path: Path) -> Iterator[Read]:
        """Yield what lies at a file, folder, archive or image layout; what cannot be read is a Skipped with its reason, never an error."""
        ...


class Probe(Protocol):
    """Tries a real tool on one file, in a child without network, with limits of time, memory and file size."""

    name: str

    def missing(self) -> str:
        """Return what is not installed, "" where the probe can run."""
        ...

    def wants(self, path: str, text: str) -> bool:
        """Tell whether this probe has anything to say of such a file."""
        ...

    def probe(self, root: Path, path: str, text: str, target: str) -> ProbeResult:
        """Try it; a tool that hangs, dies or is stopped gives "unknown".

        Args:
            root: folder that includes are looked up in, read-only; path: of the file in it; target: such as "gfx942".
        """
        ...


class CopyWriter(Protocol):
    """Writes a translated tree beside its source."""

    def write(self, folder: Path, files: Iterable[tuple[str, bytes]]) -> int:
        """Write files by relative name into a folder that is new or empty; return how many.

        Raises:
            UsageError: usage.folder_used, usage.folder: it holds something, or cannot be written.
        """
        ...
