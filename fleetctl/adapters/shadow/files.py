"""Migrate, adapters layer: the Shadow port over a router's tee and the files that its collector writes. Never compares anything itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC

from fleetctl.domain.canonical import decode
from fleetctl.domain.evidence import Cursor, Pair
from fleetctl.domain.ids import CellId, Token, require_id
from fleetctl.errors import EvidenceUnavailable, TrafficNotApplied

PAIRS = "pairs"
"""Folder of `<cell>.jsonl` in the shadow folder."""
_BEGINS = b'{"_":"Pair","at":"'
"""How the collector begins a line; its instant follows, in UTC and always as long."""


@dataclass(slots=True)
class _Seen:
    """How far a cell's file was read; `floor`: of pairs older than that nothing was kept, as a line's instant."""

    floor: bytes = b""
    inode: int = 0
    offset: int = 0
    pairs: list[Pair] = field(default_factory=list)
    unreadable: int = 0


class ShadowFiles:
    """`Shadow` over files; reads on where it stopped.

    Args:
        folder: of the collector; comparisons are in `pairs/<cell>.jsonl`.
        set_rate: tells the router how many copies of a cell to make, in thousandths per second; 0 stops it.
        forbids: says why no copy of a cell may be made, "" where it may.
    """

    def __init__(
        self, folder: str | os.PathLike[str], set_rate: Callable[[CellId, int], None], *, forbids: Callable[[CellId], str] = lambda _: ""
    ) -> None:
        self._folder = os.fspath(folder)
        self._set_rate, self._forbids = set_rate, forbids
        self._seen: dict[CellId, _Seen] = {}

    def start(self, c: CellId, sample_per_s: float, token: Token) -> None:
        """Begin, or go on, comparing; idempotent. The token is not needed: a late copy changes nothing for any client.

        Raises:
            TrafficNotApplied: traffic.copies_forbidden: where copies may not go; as `set_rate` does.
        """
        if not 0 < sample_per_s <= 1000:
            raise ValueError(f"{sample_per_s} copies a second are not above 0 and at most 1,000")
        why = self._forbids(c)
        if why:
            self._set_rate(c, 0)  # also what an earlier fleet file had allowed
            text = f"no copy of the requests of cell {c} is made: {why}."
            raise TrafficNotApplied("traffic.copies_forbidden", text, hint="Correct regions or target in the fleet file.")
        self._set_rate(c, max(1, round(sample_per_s * 1000)))

    def stop(self, c: CellId) -> None:
        """Stop; idempotent.

        Raises:
            TrafficNotApplied: as `set_rate` does.
        """
        self._set_rate(c, 0)

    def pairs(self, c: CellId, since: Cursor | None) -> tuple[Pair, ...]:
        """Return comparisons made since the cursor (all where None), oldest first.

        Raises:
            EvidenceUnavailable: evidence.down, where there is a file that cannot be read.
        """
        floor = b"" if since is None else since.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode()
        seen = self._seen.setdefault(c, _Seen(floor=floor))
        if floor < seen.floor:
            seen = self._seen[c] = _Seen(floor=floor)
        elif since is not None and floor > seen.floor:
            seen.floor, seen.pairs = floor, [p for p in seen.pairs if p.at >= since.since]
        path = os.path.join(self._folder, PAIRS, require_id(c) + ".jsonl")
        try:
            with open(path, "rb") as f:
                found = os.fstat(f.fileno())
                if found.st_ino != seen.inode or found.st_size < seen.offset:
                    seen = self._seen[c] = _Seen(floor=floor, inode=found.st_ino)
                f.seek(seen.offset)
                self._take(seen, f.read())
        except FileNotFoundError:
            self._seen[c] = seen = _Seen(floor=floor)
        except OSError as e:
            raise EvidenceUnavailable("evidence.down", f"{path} cannot be read: {e.strerror}.", hint="Run: fleetctl doctor") from e
        return tuple(seen.pairs)

    def unreadable(self, c: CellId) -> int:
        """Return how many lines of a cell's file could not be understood so far."""
        return self._seen.get(c, _Seen()).unreadable

    def _take(self, seen: _Seen, data: bytes) -> None:
        whole = data.rfind(b"\n") + 1  # the rest is still being written
        seen.offset += whole
        for line in data[:whole].splitlines():
            if not line or (line.startswith(_BEGINS) and line[len(_BEGINS) :][: len(seen.floor)] < seen.floor):
                continue  # an earlier rollout's: not even understood, there may be hundreds of thousands
            try:
                seen.pairs.append(decode(Pair, line))
            except (ValueError, TypeError):
                seen.unreadable += 1
