"""Inventory, adapter layer: the fleet file as a source of facts. Reads that one file and never the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import ConfigInvalid
from fleetctl.formats.fleet_file import read_fleet


class FileDiscovery:
    """Discovery of what the fleet file declares.

    Args:
        path: the fleet file; shown_as: its name in facts; now: the time.
    """

    def __init__(self, path: Path, shown_as: str, now: Callable[[], Instant]) -> None:
        self._path = path
        self._shown = shown_as
        self._now = now

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield one fact per pool, workload and cell whose id begins with `scope`; a broken file is a gap."""
        source = f"file {self._shown}"
        try:
            fleet = read_fleet(self._path, shown_as=self._shown)
        except ConfigInvalid as e:
            yield Gap(scope=scope or "fleet", reason=e.message, source=source)
            return
        for id_, values in _declared(fleet):
            if id_.startswith(scope):
                yield Facts(values=values, source=source, seen_at=self._now())


def _declared(fleet: Fleet) -> Iterator[tuple[str, Mapping[str, Scalar]]]:
    for p in fleet.pools:
        yield p.id, {"pool": p.id, "vendor": p.vendor, "sku": p.sku, "region": p.region, "count": p.count, "limit": p.limit}
    for w in fleet.workloads:
        yield w.id, {"workload": w.id, "model": w.model.name, "engine": w.engine, "class": w.klass}
    for c in fleet.cells:
        yield c.id, {"cell": c.id, "workload": c.workload, "region": c.region, "source": c.source, "router": c.router.name}
