"""Migrate, adapter layer: checks of both arms that run beside the ticker, in threads of their own. Never judges, never moves a weight.

A check that a process did not finish leaves no result: the next ticker finds it due and begins it again.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from fleetctl.domain.checks import CheckSeen
from fleetctl.domain.ids import CellId
from fleetctl.domain.workload import CheckName, CheckSpec
from fleetctl.errors import ConfigInvalid

MOST_FILE = 32 << 20
MOST_CELLS = 2
"""Cells whose checks run at a time: each loads both arms with one request at a time."""


class BackgroundChecks:
    """`Checks` of a process; one thread per cell, one check after the other.

    Args:
        run: runs one check to its end and keeps its result; standing: tells how kept results stand, given what is running.
    """

    def __init__(
        self,
        run: Callable[[CellId, CheckSpec], object],
        standing: Callable[[CellId, Sequence[CheckSpec], str, frozenset[CheckName]], tuple[CheckSeen, ...]],
    ) -> None:
        self._run, self._standing = run, standing
        self._going: dict[CellId, list[CheckName]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_CELLS)

    def standing(self, c: CellId, checks: Sequence[CheckSpec], arms: str) -> tuple[CheckSeen, ...]:
        """Return how each check stands."""
        with self._lock:
            running = frozenset(self._going.get(c, ()))
        return self._standing(c, checks, arms, running)

    def start(self, c: CellId, checks: Sequence[CheckSpec]) -> None:
        """Begin what is not running yet; a cell's checks wait for those that it has under way."""
        with self._lock:
            if c in self._going or not checks:
                return
            self._going[c] = [s.name for s in checks]
            self._threads = [t for t in self._threads if t.is_alive()]
            thread = threading.Thread(target=self._all, args=(c, tuple(checks)), name=f"checks {c}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for what is under way, at most so long in all threads together."""
        for thread in list(self._threads):
            thread.join(timeout_s)

    def _all(self, c: CellId, checks: tuple[CheckSpec, ...]) -> None:
        try:
            with self._room:
                for spec in checks:
                    try:
                        self._run(c, spec)
                    except Exception as e:  # a result says so where there is one; the ticker goes on either way
                        logging.getLogger("fleetctl.checks").warning("check %s of %s: %s: %s", spec.name, c, type(e).__name__, e)
                    with self._lock:
                        self._going[c].remove(spec.name)
        finally:
            with self._lock:
                self._going.pop(c, None)


class PromptFiles:
    """Files of prompts, hashed again only where they have changed.

    Args:
        folder: what their paths are relative to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, int], str]] = {}

    def text(self, name: str) -> str:
        """Return a file's text. Raises ConfigInvalid (config.items)."""
        try:
            return self._bytes(name).decode("utf-8")
        except UnicodeDecodeError as e:
            raise ConfigInvalid("config.items", f"{name} is no UTF-8 text.", hint="Correct the fleet file or the file") from e

    def digest(self, name: str) -> str:
        """Return a file's hash, "" for no file. Raises ConfigInvalid (config.items)."""
        if not name:
            return ""
        try:
            found = (self._folder / name).stat()
        except OSError as e:
            raise ConfigInvalid("config.items", f"{name} cannot be read: {e.strerror}.", hint="Correct the fleet file or the file") from e
        stamp = (found.st_mtime_ns, found.st_size)
        if self._known.get(name, ((0, 0), ""))[0] != stamp:
            self._known[name] = (stamp, hashlib.sha256(self._bytes(name)).hexdigest()[:16])
        return self._known[name][1]

    def _bytes(self, name: str) -> bytes:
        path = self._folder / name
        try:
            if not path.is_file():
                raise ConfigInvalid("config.items", f"{name} is no file.", hint="Correct the fleet file or the file")
            if path.stat().st_size > MOST_FILE:
                raise ConfigInvalid("config.items", f"{name} is over {MOST_FILE >> 20} MiB.", hint="Give fewer items")
            return path.read_bytes()
        except OSError as e:
            raise ConfigInvalid("config.items", f"{name} cannot be read: {e.strerror}.", hint="Correct the fleet file or the file") from e
