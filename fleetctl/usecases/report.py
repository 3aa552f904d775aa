"""Report, use-case layer: gather plan, looks, events and chains for a report. Never imports an adapter, never changes anything."""

from __future__ import annotations

from fleetctl.domain.event import Event, broken_link
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, Sha256
from fleetctl.domain.plan import Plan
from fleetctl.domain.report import ChainHead, ClientCount, ReportData
from fleetctl.domain.sensitivity import Sensitivity
from fleetctl.ports.state import Clock, Records, Store, Trail


def gather(
    fleet: Fleet,
    store: Store,
    records: Records,
    trail: Trail,
    clock: Clock,
    lab: tuple[tuple[str, str, str], ...] = (),
    clients: ClientCount | None = None,
) -> ReportData:
    """Return all that a report shows, as it is now.

    Args:
        lab: (name, "real" or "emulated", what) per part of a lab; clients: what the clients counted, None where nobody did.
    """
    cells = store.cells()
    chains = {c: tuple(store.events(c, 0)) for c in (None, *cells)}
    rollouts = (store.load(c) for c in cells)
    plan = records.newest(Plan)
    return ReportData(
        made_at=clock.now(),
        fleet=fleet,
        plan=plan,
        sensitivity=records.get(Sensitivity, plan.id) if plan is not None else None,
        rollouts=tuple(r for r in rollouts if r is not None),
        looks={c: tuple(trail.rows(c, None)) for c in cells},
        events=tuple(sorted((e for chain in chains.values() for e in chain), key=lambda e: e.at)),
        chains=tuple(_head(c, chain) for c, chain in chains.items()),
        lab=lab,
        clients=clients,
    )


def _head(cell: CellId | None, chain: tuple[Event, ...]) -> ChainHead:
    fault = broken_link(chain)
    return ChainHead(
        cell=cell,
        events=len(chain),
        head=chain[-1].hash if chain else Sha256(""),
        broken="" if fault is None else f"link {fault[0]} {fault[1]}",
    )
