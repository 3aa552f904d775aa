"""Evidence, adapter layer: counters of a cell's replicas from their own metrics pages. Never a completion, never a verdict.

Pages keep no history: what they said when counting began is kept in a small file per cell, so that another process goes on from there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.adapters.engines.wire import Server, Silent, engine_id
from fleetctl.analysis.buckets import scrape_of
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.metrics import MetricTable
from fleetctl.domain.records import Scrape
from fleetctl.domain.units import Instant
from fleetctl.errors import EvidenceUnavailable
from fleetctl.formats.exposition import samples
from fleetctl.formats.recording import from_line, to_line

AT_ONCE = 16
PAGE_LIMIT_S = 2.0
_STARTS_KEPT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One metrics page of an arm.

    Args:
        url: "host:port" or an address; path: of the page.
        system, version: of its exporter, as in the table ("" where the version is not known).
        needs: canonical metrics without which it is of no use.
    """

    arm: Arm
    url: str
    system: str
    version: str = ""
    needs: tuple[str, ...] = ()
    path: str = "/metrics"


@dataclass(slots=True)
class _Cell:
    """What was last scraped of a cell, and when."""

    at: float = float("-inf")
    newest: tuple[Scrape, ...] = ()
    starts: dict[int, tuple[Scrape, ...]] = field(default_factory=dict)
    is_read: bool = False


class PageScraper:
    """`Scraper` of metrics pages, each asked at most every `every_s`.

    Args:
        pages: per cell; folder: where the beginnings are kept, made when needed; record: told of every scrape.
    """

    def __init__(
        self,
        pages: Mapping[CellId, tuple[Page, ...]],
        table: MetricTable,
        folder: Path,
        *,
        now: Callable[[], Instant],
        every_s: float = 5.0,
        ca_file: str = "",
        key: Callable[[], str] | None = None,
        record: Callable[[Scrape], None] | None = None,
    ) -> None:
        self._pages, self._table, self._folder = dict(pages), table, folder
        self._now, self._every_s, self._ca_file, self._key, self._record = now, every_s, ca_file, key, record
        self._cells: dict[CellId, _Cell] = {}

    def scrapes(self, c: CellId, start: Instant, after: Instant | None) -> Iterable[Scrape]:
        """Return what stood when counting began (once), then what stands now."""
        cell = self._cell(c)
        key = int(start.timestamp() * 1_000)
        found: list[Scrape] = []
        if after is None:
            found += cell.starts.get(key, ())
        newest = self._look(c, cell)
        found += newest
        begun = {(s.arm, s.replica) for s in cell.starts.get(key, ())}
        first = [s for s in newest if s.at_ms >= key and s.up and not s.is_nan and not s.trouble and (s.arm, s.replica) not in begun]
        if first:
            cell.starts[key] = (*cell.starts.get(key, ()), *first)
            for old in sorted(cell.starts)[:-_STARTS_KEPT]:
                del cell.starts[old]
            self._save(c, cell)
        return found

    def newest(self, c: CellId) -> Iterable[Scrape]:
        """Return how the counters stand now."""
        return self._look(c, self._cell(c))

    def query(self, c: CellId) -> str:
        """Name the pages."""
        pages = self._pages.get(c, ())
        return " ".join(f"GET {p.url}{p.path} ({p.arm})" for p in pages[:8]) + (f" and {len(pages) - 8} more" if len(pages) > 8 else "")

    def _look(self, c: CellId, cell: _Cell) -> tuple[Scrape, ...]:
        pages = self._pages.get(c, ())
        if not pages:
            raise EvidenceUnavailable("evidence.down", f"no metrics page of {c} is known.", hint="Name its endpoints in the fleet file")
        if time.monotonic() - cell.at >= self._every_s:
            with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(pages))) as pool:
                cell.newest = tuple(pool.map(lambda page: self._scrape(c, page), pages))
            cell.at = time.monotonic()
            for scrape in cell.newest if self._record else ():
                if self._record is not None:
                    self._record(scrape)
        return cell.newest

    def _scrape(self, c: CellId, page: Page) -> Scrape:
        replica = page.url
        try:
            replica = engine_id(page.url)
            headers = {"Authorization": f"Bearer {self._key()}"} if self._key else {}
            server = Server(page.url, deadline_s=PAGE_LIMIT_S, ca_file=self._ca_file, headers=headers)
            status, body = server.get(page.path)
            at_ms = round(self._now().timestamp() * 1_000)
        except (Silent, ValueError) as e:
            return Scrape(
                cell=c, arm=page.arm, replica=replica, at_ms=round(self._now().timestamp() * 1_000), up=False, trouble=str(e)[:160]
            )
        if status != 200:
            return Scrape(cell=c, arm=page.arm, replica=replica, at_ms=at_ms, up=False, trouble=f"{page.path} answers {status}")
        totals = self._table.read(page.system, page.version, samples(body.decode("utf-8", "replace")))
        return scrape_of(
            self._table,
            totals,
            system=page.system,
            version=page.version,
            needs=page.needs,
            cell=c,
            arm=page.arm,
            replica=replica,
            at_ms=at_ms,
        )

    def _cell(self, c: CellId) -> _Cell:
        cell = self._cells.setdefault(c, _Cell())
        if not cell.is_read:
            cell.is_read = True
            for key, scrape in self._saved(c):
                cell.starts[key] = (*cell.starts.get(key, ()), scrape)
        return cell

    def _saved(self, c: CellId) -> Iterable[tuple[int, Scrape]]:
        try:
            lines = (self._folder / f"{c}.starts").read_text("utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            key, _, text = line.partition(" ")
            try:
                scrape = from_line(text)
            except ValueError:
                continue
            if isinstance(scrape, Scrape) and key.isdigit() and scrape.cell == c:
                yield int(key), scrape

    def _save(self, c: CellId, cell: _Cell) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._folder / f".{c}.{os.getpid()}.new"
        text = "".join(f"{key} {to_line(s)}\n" for key, kept in sorted(cell.starts.items()) for s in kept)
        new.write_text(text, "utf-8")
        new.chmod(0o600)
        os.replace(new, self._folder / f"{c}.starts")
