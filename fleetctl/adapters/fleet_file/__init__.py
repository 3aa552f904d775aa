"""Inventory, adapter layer: the fleet file as a source of facts. Reads that one file and never the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.units import Instant, Scalar
from fleetctl.domain.workload import Workload
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
    for h in fleet.hosts:
        yield h.id, {"machine": h.id, "name": h.id, "address": _host(h.address), "pool": h.pool}
    for w in fleet.workloads:
        yield w.id, {"workload": w.id, "model": w.model.name, "software": w.engine, "class": w.klass, **_told(w)}
    for c in fleet.cells:
        yield c.id, {"cell": c.id, "workload": c.workload, "region": c.region, "source": c.source, "router": c.router.name}


def _told(w: Workload) -> dict[str, Scalar]:
    """Return what else the file says of a workload, without what it leaves out."""
    told: dict[str, Scalar] = {"owner": w.owner, "cost_centre": w.cost_centre, "tenant": w.tenant, "data_class": w.data_class}
    told |= {"engine_version": w.engine_version, "adapters": " ".join(w.adapters), "context_tokens": w.model.context_tokens}
    traffic: dict[str, Scalar] = {"requests_per_s": w.traffic.requests_per_s, "trough_per_s": w.traffic.trough_per_s}
    traffic |= {"input_tokens": w.traffic.input_tokens, "output_tokens": w.traffic.output_tokens}
    return {k: v for k, v in told.items() if v != ""} | {k: v for k, v in traffic.items() if v}


def _host(address: str) -> str:
    """Return an address without its port."""
    head, colon, port = address.rpartition(":")
    return head.strip("[]") if colon and port.isdigit() and (":" not in head or head.startswith("[")) else address
