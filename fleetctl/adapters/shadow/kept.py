"""Evidence, adapters layer: copies of requests kept for a replay, only where somebody opted in, and only for so long. Never answers them.

One file per cell, 0600, encrypted, begun with its terms (`fleetctl.formats.replay`). When its time is over it is removed, whoever asks for
it. A tenant who opts out is kept no more, and what was kept of him is removed. Where key or list cannot be read, nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fleetctl.adapters.shadow.own_files import read_own
from fleetctl.domain.ids import CellId
from fleetctl.domain.units import Instant
from fleetctl.errors import CredentialsMissing
from fleetctl.formats.replay import (
    MOST_KEPT,
    MOST_REQUESTS,
    ReplayHeader,
    header_line,
    opted_out,
    read_header,
    request_text,
    tenant_of,
)
from fleetctl.formats.request_copy import Refused
from fleetctl.formats.sealed import NONCE_BYTES, Seal, key_id, key_of

FOLDER = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTerms:
    """What a workload's owner agreed to.

    Args:
        region: where they are recorded; hours: their time to live, at most 720; by, reason: who opted in, and why; most: requests.
        key_file: 0600 and ours, 32 bytes in base64. opted_out: a file of tenants who opted out, one a line; it must be there.
        tenant: key of a request's body that names its tenant, such as `user` or `metadata.org`; "" where the whole cell is one tenant's,
            named as the cell. A request that names nobody is not kept.
    """

    region: str
    hours: float
    by: str
    reason: str
    key_file: str
    opted_out: str
    tenant: str
    most: int = 1_000

    def __post_init__(self) -> None:
        if not (self.region and self.by.strip() and self.reason.strip()):
            raise ValueError("keeping requests needs region, by and reason")
        if not (self.key_file and self.opted_out):
            raise ValueError("requests are kept encrypted and but for tenants who opted out: key_file and opted_out are needed")
        if not (0 < self.hours <= MOST_KEPT / timedelta(hours=1) and 1 <= self.most <= MOST_REQUESTS):
            raise ValueError(f"requests are kept from 0 to {MOST_KEPT.days} days, 1 to {MOST_REQUESTS:,} of them")


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A file that stands: when it ends, how many requests it holds, and the tenants who were out when it was last looked through."""

    expires: Instant
    count: int
    out: frozenset[str] | None = None


class KeptRequests:
    """The kept requests of some cells.

    Args:
        folder: files go to `replay/<cell>.jsonl` in it; terms: of the cells that may be kept at all.
    """

    def __init__(self, folder: str | os.PathLike[str], terms: Mapping[str, KeepTerms]) -> None:
        self._folder, self._terms = Path(folder) / FOLDER, dict(terms)
        self._known: dict[str, _Kept] = {}

    def add(self, cell: str, body: bytes, now: Instant) -> bool:
        """Keep a request; False where nobody opted in, its tenant opted out, there are enough, or it may not be sent again."""
        terms = self._terms.get(cell)
        if terms is None:
            return False
        self.purge(now)
        try:
            key, out = _key(terms), _out(terms)
            data = json.loads(body)
            tenant = tenant_of(data, terms.tenant, cell)
            if tenant in out:
                return False
            text = request_text(data, tenant)
            known = self._known.get(cell) or self._begin(cell, terms, key, now)
            if known.count >= terms.most:
                return False
            seal = self._seal(cell, key)
        except (ValueError, RecursionError, Refused, CredentialsMissing):
            return False
        self._write(cell, seal.line(text, os.urandom(NONCE_BYTES)))
        known.count += 1
        return True

    def purge(self, now: Instant) -> None:
        """Remove what has expired, also of cells that nobody keeps any more, and what is there of tenants who opted out since."""
        for cell, known in list(self._known.items()):
            if known.expires <= now:
                self._path(cell).unlink(missing_ok=True)
                del self._known[cell]
            elif cell in self._terms:
                with contextlib.suppress(ValueError, CredentialsMissing):
                    self._let_out(cell, known, self._terms[cell])

    def look(self, now: Instant) -> None:
        """Find what an earlier process kept; a file without terms, or that is not encrypted, is removed."""
        for path in self._folder.glob("*.jsonl"):
            try:
                with path.open("rb") as f:
                    expires, count = read_header(f.readline()).expires, sum(1 for _ in f)
            except ValueError:
                path.unlink(missing_ok=True)
                continue
            self._known[path.stem] = _Kept(expires=expires, count=count)
        self.purge(now)

    def count(self, cell: str) -> int:
        """Return how many requests of a cell are kept."""
        return self._known[cell].count if cell in self._known else 0

    def _begin(self, cell: str, terms: KeepTerms, key: bytes, now: Instant) -> _Kept:
        head = ReplayHeader(
            cell=CellId(cell),
            region=terms.region,
            recorded=now,
            expires=now + timedelta(hours=terms.hours),
            by=terms.by,
            reason=terms.reason,
            tenant=terms.tenant,
            key_id=key_id(key),
        )
        with contextlib.suppress(FileNotFoundError):
            self._path(cell).unlink()
        self._write(cell, header_line(head))
        self._known[cell] = _Kept(expires=head.expires, count=0)
        return self._known[cell]

    def _seal(self, cell: str, key: bytes) -> Seal:
        """Return what encrypts the lines of a cell's file. Raises ValueError where it was begun with another key."""
        with self._path(cell).open("rb") as f:
            first = f.readline().rstrip(b"\r\n")
        if read_header(first).key_id != key_id(key):
            raise ValueError("the file was begun with another key")
        return Seal(key, first)

    def _let_out(self, cell: str, known: _Kept, terms: KeepTerms) -> None:
        """Write a cell's file anew without the tenants who opted out since it was last looked through."""
        out = _out(terms)
        if out == known.out:
            return
        seal = self._seal(cell, _key(terms))
        first, *lines = self._path(cell).read_bytes().splitlines(keepends=True)
        stays = [line for line in lines if _tenant(seal, line) not in out]
        if len(stays) < len(lines):
            new = self._path(cell).with_suffix(".new")
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as f:
                f.writelines([first, *stays])
                f.flush()
                os.fsync(f.fileno())
            new.replace(self._path(cell))
        known.count, known.out = len(stays), out

    def _path(self, cell: str) -> Path:
        return self._folder / f"{cell}.jsonl"

    def _write(self, cell: str, line: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path(cell), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{line}\n".encode())
        finally:
            os.close(fd)


def _key(terms: KeepTerms) -> bytes:
    return key_of(read_own(terms.key_file, "the key of kept requests"))


def _out(terms: KeepTerms) -> frozenset[str]:
    """Return who opted out. Raises ValueError where the list cannot be read: anybody might stand on it."""
    try:
        return opted_out(Path(terms.opted_out).read_text(encoding="utf-8"))
    except OSError as e:
        raise ValueError(f"{terms.opted_out} cannot be read: {e.strerror}") from e


def _tenant(seal: Seal, line: bytes) -> str | None:
    """Return whose a kept line is; None of one that cannot be read."""
    with contextlib.suppress(ValueError, AttributeError):
        return str(json.loads(seal.text(line)).get("tenant"))
    return None
