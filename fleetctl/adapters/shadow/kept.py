"""Evidence, adapters layer: copies of requests kept for a replay, only where somebody opted in, and only for so long. Never answers them.

One file per cell, 0600, begun with its terms (`fleetctl.formats.replay`). When its time is over it is removed, whoever asks for it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.formats.replay import MOST_KEPT, MOST_REQUESTS, ReplayHeader, header_line, read_header, request_line
from fleetctl.formats.request_copy import Refused

FOLDER = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTerms:
    """What a workload's owner agreed to.

    Args:
        region: where they are recorded; hours: their time to live, at most 720; by, reason: who opted in, and why; most: requests.
    """

    region: str
    hours: float
    by: str
    reason: str
    most: int = 1_000

    def __post_init__(self) -> None:
        if not (self.region and self.by.strip() and self.reason.strip()):
            raise ValueError("keeping requests needs region, by and reason")
        if not (0 < self.hours <= MOST_KEPT / timedelta(hours=1) and 1 <= self.most <= MOST_REQUESTS):
            raise ValueError(f"requests are kept from 0 to {MOST_KEPT.days} days, 1 to {MOST_REQUESTS:,} of them")


class KeptRequests:
    """The kept requests of some cells.

    Args:
        folder: files go to `replay/<cell>.jsonl` in it; terms: of the cells that may be kept at all.
    """

    def __init__(self, folder: str | os.PathLike[str], terms: Mapping[str, KeepTerms]) -> None:
        self._folder, self._terms = Path(folder) / FOLDER, dict(terms)
        self._known: dict[str, tuple[Instant, int]] = {}

    def add(self, cell: str, body: bytes, now: Instant) -> bool:
        """Keep a request; False where nobody opted in, there are enough, or it may not be sent again."""
        terms = self._terms.get(cell)
        if terms is None:
            return False
        self.purge(now)
        known = self._known.get(cell) or self._begin(cell, terms, now)
        if known[1] >= terms.most:
            return False
        try:
            line = request_line(json.loads(body))
        except (ValueError, RecursionError, Refused):
            return False
        self._write(cell, line)
        self._known[cell] = (known[0], known[1] + 1)
        return True

    def purge(self, now: Instant) -> None:
        """Remove what has expired, also of cells that nobody keeps any more."""
        for cell, (expires, _) in list(self._known.items()):
            if expires <= now:
                self._path(cell).unlink(missing_ok=True)
                del self._known[cell]

    def look(self, now: Instant) -> None:
        """Find what an earlier process kept; a file without terms is removed."""
        for path in self._folder.glob("*.jsonl"):
            try:
                with path.open("rb") as f:
                    expires, count = read_header(f.readline()).expires, sum(1 for _ in f)
            except ValueError:
                path.unlink(missing_ok=True)
                continue
            self._known[path.stem] = (expires, count)
        self.purge(now)

    def count(self, cell: str) -> int:
        """Return how many requests of a cell are kept."""
        return self._known.get(cell, (None, 0))[1]

    def _begin(self, cell: str, terms: KeepTerms, now: Instant) -> tuple[Instant, int]:
        head = ReplayHeader(
            cell=CellId(cell),
            region=terms.region,
            recorded=now,
            expires=now + timedelta(hours=terms.hours),
            by=terms.by,
            reason=terms.reason,
        )
        with contextlib.suppress(FileNotFoundError):
            self._path(cell).unlink()
        self._write(cell, header_line(head))
        self._known[cell] = (head.expires, 0)
        return self._known[cell]

    def _path(self, cell: str) -> Path:
        return self._folder / f"{cell}.jsonl"

    def _write(self, cell: str, line: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path(cell), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)
