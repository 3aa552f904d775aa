"""Simulator: the state of record of a history: in memory, or the real one over a SQLite file whose clock is the world's."""

from __future__ import annotations

import marshal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fleetctl.adapters.store import sqlite
from fleetctl.analysis import memory
from fleetctl.domain.units import Instant
from fleetctl.errors import StoreUnavailable
from tests.fakes.store import MemoryStore


class FileStore:
    """A `SqliteStore` that can be out of reach."""

    def __init__(self, path: Path) -> None:
        self._of = sqlite.SqliteStore(path)
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise StoreUnavailable("store.unreachable", "the store was switched off by a test.")
        return getattr(self._of, name)

    def close(self) -> None:
        self._of.close()


Kept = MemoryStore | FileStore


@contextmanager
def in_memory(now: Callable[[], Instant]) -> Iterator[MemoryStore]:
    """Give a store whose values are not encoded, and a judge whose numbers are kept exactly, but not as text: the fastest."""
    with mock.patch.multiple(memory, _written=_exact, _parsed=marshal.loads):
        yield MemoryStore(now, copies=False)


def _exact(data: Any) -> bytes:
    return marshal.dumps(data, 2)  # later versions write the same value in several ways


@contextmanager
def in_a_file(now: Callable[[], Instant]) -> Iterator[FileStore]:
    """Give the real store; only its clock is made up, and its disk never fails."""

    def now_ms(_: object) -> int:
        return round(now().timestamp() * 1000)

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(sqlite, "_now_ms", now_ms):
        store = FileStore(Path(folder) / "fleet.db")
        try:
            yield store
        finally:
            store.close()
