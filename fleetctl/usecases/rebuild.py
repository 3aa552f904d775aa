"""Coming home, use-case layer: make a source anew that was given back, as any pool is made. Imports no adapter, moves no traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.release import Release
from fleetctl.errors import FleetctlError, Interrupted, UnsafeFallback
from fleetctl.ports.state import Clock, Records, Store
from fleetctl.usecases.home_choice import Failure
from fleetctl.usecases.ways_back import WayBack, ways_back


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """What would be made so that cells have a source again.

    Args:
        cells: ways home of those that it is the source of; way: the one that is taken; passed: better ones that need a plan, as sentences.
    """

    spec: PoolSpec
    way: WayBack
    cells: tuple[WayHome, ...]
    passed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildPorts:
    """All that a rebuild touches besides the fleet.

    Args:
        make: provisions the pools of a plan; prepare: configures their hosts; made: says in the ways home that this source is one again.
    """

    store: Store
    records: Records
    clock: Clock
    actor: Actor
    make: Callable[[Plan], None]
    prepare: Callable[[Plan], None]
    made: Callable[[PoolId], None]


def chosen(ways: Sequence[WayHome], fleet: Fleet, ports: RebuildPorts) -> tuple[tuple[Rebuild, ...], tuple[Failure, ...]]:
    """Take of the ways back of each source the best that ends at home by itself: its own pool made anew, which its router knows.

    Another pool of the vendor may rank better; customers go there by a plan only, since no router sends this cell's requests to it.

    Returns:
        What to make, the source of most cells first; and the cells whose source cannot be made here, with what is left.
    """
    by_source: dict[PoolId, list[WayHome]] = {}
    for way in ways:
        by_source.setdefault(way.source, []).append(way)
    found: list[Rebuild] = []
    failed: list[Failure] = []
    for source, cells in sorted(by_source.items(), key=lambda kv: (-len(kv[1]), kv[0])):
        ranked = ways_back(cells[0], fleet, ports.store, ports.records)
        own = next((n for n, w in enumerate(ranked) if w.pool == source), None)
        why = _not_ours(source, fleet, ports.records)
        if own is None or why:
            failed += [_refused(way, why or f"the fleet file has no pool {source}", ranked) for way in cells]
            continue
        spec = _spec(source, fleet, ports.records)
        found.append(Rebuild(spec=spec, way=ranked[own], cells=tuple(cells), passed=tuple(w.text for w in ranked[:own])))
    return tuple(found), tuple(failed)


def rebuild(wanted: Sequence[Rebuild], fleet: Fleet, ports: RebuildPorts) -> tuple[Failure, ...]:
    """Make each source and prepare its hosts, one after the other; what failed of one keeps no other from being made.

    Nothing is moved here: its cells go home once replicas of it answer real completions. Run again after anything, it goes on.

    Returns:
        The cells of those that could not be made, each with the cause; their traffic stays where it is.

    Raises:
        Interrupted: somebody stops it; the same command goes on.
    """
    failed: list[Failure] = []
    for one in wanted:
        pool = one.spec.pool
        _note(ports, "fallback.rebuild", f"{pool}: {one.spec.count} x {one.spec.sku} is made anew as a source", pool)
        try:
            plan = _plan(one.spec, ports.records)
            ports.make(plan)
            ports.prepare(plan)
            ports.made(pool)
        except Interrupted:
            raise
        except FleetctlError as e:
            _note(ports, "fallback.not_rebuilt", f"{pool}: {e.message}"[:300], pool)
            failed += [Failure(cell=way.cell, error=e) for way in one.cells]
        else:
            _note(ports, "fallback.rebuilt", f"{pool}: made and prepared", pool)
    return tuple(failed)


def _plan(spec: PoolSpec, records: Records) -> Plan:
    """Return the newest plan with this pool as all that is to be made: outcomes say what serves, pools what is asked of Terraform.

    Raises:
        UnsafeFallback: fallback.cannot_rebuild, nothing was ever planned here.
    """
    last = records.newest(Plan)
    if last is None:
        raise UnsafeFallback("fallback.cannot_rebuild", "no plan was ever saved here, so nothing can be made.", hint="Run: fleetctl plan")
    return replace(last, pools=(spec,))


def _not_ours(source: PoolId, fleet: Fleet, records: Records) -> str:
    pool = next((p for p in fleet.pools if p.id == source), None)
    if pool is None:
        return ""
    if pool.provisioned_by == "existing":
        return f"others built {source} (provisioned_by: existing), and only they can build it again"
    return "" if _count(source, fleet, records) else f"how many machines {source} had is not known: say its count in the fleet file"


def _count(source: PoolId, fleet: Fleet, records: Records) -> int:
    """Return how many machines the pool is to have: what the fleet file says, else as many as were given back."""
    given_back = records.get(Release, source)
    return fleet.pool(source).count or (len(given_back.hosts) if given_back is not None else 0)


def _spec(source: PoolId, fleet: Fleet, records: Records) -> PoolSpec:
    p = fleet.pool(source)
    count = _count(source, fleet, records)
    return PoolSpec(pool=p.id, vendor=p.vendor, sku=p.sku, region=p.region, count=count, priority=p.priority, stack=p.provisioned_by)


def _refused(way: WayHome, why: str, ranked: Sequence[WayBack]) -> Failure:
    text = f"the source of {way.cell} cannot be made anew here: {why}; nothing was moved."
    hint = "Choose one, say it in the fleet file (count, or the cell's source), then run: fleetctl plan"
    details = tuple(f"{n}. {w.text}" for n, w in enumerate(ranked, start=1))
    return Failure(cell=way.cell, error=UnsafeFallback("fallback.cannot_rebuild", text, hint=hint, details=details))


def _note(ports: RebuildPorts, kind: str, text: str, pool: PoolId) -> None:
    ports.store.append((Event(at=ports.clock.now(), kind=kind, actor=ports.actor, text=text, data={"pool": pool}),))
