"""Provision and configure, use-case layer: what both touch, and preparing hosts. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from fleetctl.domain.capacity import Attempt, Candidate, Leftover
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Actor, Diagnostic
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import HostResult, Progress, Provisioned, ProvisionPlan
from fleetctl.errors import ConfigureFailed, LeaseHeld
from fleetctl.ports.capacity import CapacitySource, Configurator, Leftovers, Provisioner
from fleetctl.ports.state import Clock, Held, Lease, Lost, Records, Store

POOL_TTL = timedelta(minutes=90)
"""Longest that one step of a run may take (an apply is stopped after 60 minutes); renewed at each step, and taken from a dead holder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHosts:
    """A pool's hosts as the last provision left them; record kind of its own."""

    pool: PoolId
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionOutcome:
    """What one pool's run came to; `done` is None where only shown or nothing had to change.

    Args:
        place: where it is, or would be; attempts: of this run, failed ones too.
        orphans: what is beside the state and was only looked at; removed: what was, and this run has removed.
        usd_per_hour: what the plan adds to the bill, None where a price is not known.
    """

    spec: PoolSpec
    shown: ProvisionPlan
    findings: tuple[Diagnostic, ...]
    done: Provisioned | None
    hosts: tuple[Host, ...]
    place: Candidate | None = None
    attempts: tuple[Attempt, ...] = ()
    orphans: tuple[Leftover, ...] = ()
    removed: tuple[Leftover, ...] = ()
    usd_per_hour: Decimal | None = None


Shown = Callable[[PoolSpec, ProvisionPlan, Decimal | None], None]


class NoLeftovers:
    """`Leftovers` where nothing is tagged, as in the lab."""

    def find(self, tag: str) -> tuple[Leftover, ...]:
        """Return nothing."""
        return ()

    def remove(self, one: Leftover) -> None:
        """Do nothing."""


def only_place(spec: PoolSpec) -> tuple[Candidate, ...]:
    """Return the place that was asked for and no other."""
    return (Candidate(sku=spec.sku, region=spec.region, zone=spec.zone, priority=spec.priority),)


def no_source(spec: PoolSpec) -> CapacitySource | None:
    """Return that nobody can be asked."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPorts:
    """All that provision and configure touch.

    Args:
        leftovers, source: of the cloud that a pool is in; places: where it may be made, what was asked for first.
        keeps: some machines that were had are kept where the rest cannot be had; else they are given up for a place that has all.
        price: of one machine of a pool at the place that the spec names, USD per hour, None where unknown.
        shown: called with every plan before it is applied.
        is_gone: tells whether the holder of a lease is known to be dead.
        reached: called with the name of each step of the saga once it is on record (tests stop there).
    """

    store: Store
    records: Records
    clock: Clock
    provisioner: Callable[[PoolSpec], Provisioner]
    configurator: Configurator
    holder: str
    actor: Actor
    leftovers: Callable[[PoolSpec], Leftovers] = lambda _: NoLeftovers()
    source: Callable[[PoolSpec], CapacitySource | None] = no_source
    places: Callable[[PoolSpec], tuple[Candidate, ...]] = only_place
    keeps: Callable[[PoolSpec], bool] = lambda _: True
    price: Callable[[PoolSpec], Decimal | None] = lambda _: None
    shown: Shown = lambda *_: None
    reached: Callable[[str], None] = lambda _: None
    is_gone: Callable[[str], bool] = lambda _: False


def held_pools(plan: Plan, fleet: Fleet) -> frozenset[PoolId]:
    """Return the pools nothing of which may be destroyed: every source, and every target that serves."""
    sources = {c.source for c in fleet.cells}
    return frozenset(sources | {p.pool for p in plan.pools if p.hold})


def take(ports: CapacityPorts, scope: str) -> Lease:
    """Take a pool's lease.

    Raises:
        LeaseHeld: lease.held, somebody else works on it.
    """
    lease = ports.store.acquire(scope, ports.holder, POOL_TTL)
    if isinstance(lease, Held) and ports.is_gone(lease.holder):
        ports.store.evict(lease)
        lease = ports.store.acquire(scope, ports.holder, POOL_TTL)
    if isinstance(lease, Held):
        text = f"{lease.holder} works on {scope} until {lease.until:%H:%M:%S} UTC."
        raise LeaseHeld("lease.held", text, hint="Wait for it, then run the same command again")
    return lease


def still_held(ports: CapacityPorts, lease: Lease) -> Lease:
    """Return a pool's lease, renewed: asked before each call that removes something, as a run may have slept while another took over.

    Raises:
        LeaseHeld: lease.lost.
    """
    renewed = ports.store.renew(lease, POOL_TTL)
    if isinstance(renewed, Lost):
        text = f"somebody else has taken over pool {lease.scope}; this run stops where it is."
        raise LeaseHeld("lease.lost", text, hint="Wait for the other run, then run the same command again")
    return renewed


def known_hosts(records: Records, pools: Sequence[PoolId]) -> tuple[Host, ...]:
    """Return the hosts that provision recorded for these pools."""
    found = (records.get(PoolHosts, p) for p in pools)
    return tuple(h for p in found if p is not None for h in p.hosts)


def configure(
    plan: Plan,
    ports: CapacityPorts,
    variables: Callable[[Sequence[Host]], Mapping[str, object]],
    play: str,
    on: Callable[[Progress], None],
    choose: Callable[[Sequence[Host]], tuple[Host, ...]] = tuple,
) -> tuple[HostResult, ...]:
    """Prepare every host of the plan's pools; running it again changes nothing.

    Args:
        choose: takes the hosts that are wanted out of all.

    Raises:
        ConfigureFailed: configure.no_hosts, configure.failed (with one line per host that is not well).
    """
    hosts = known_hosts(ports.records, [p.pool for p in plan.pools])
    if not hosts:
        raise ConfigureFailed("configure.no_hosts", "no host of this plan has been provisioned.", hint="Run: fleetctl provision")
    hosts = choose(hosts)
    leases: list[Lease] = []
    try:
        for spec in plan.pools:  # one that is held frees those taken before it
            leases.append(take(ports, spec.pool))
        results = ports.configurator.run(play, hosts, variables(hosts), max(lease.token for lease in leases), on)
    finally:
        for lease in leases:
            ports.store.release(lease)
    bad = [r for r in results if r.state != "ok"]
    note(ports, "configure.failed" if bad else "configure.done", f"{len(results) - len(bad)} of {len(results)} hosts ready")
    if bad:
        raise ConfigureFailed(
            "configure.failed" if any(r.state == "failed" for r in bad) else f"configure.{bad[0].state}",
            f"{len(bad)} of {len(results)} hosts are not ready.",
            hint="Mend the cause, then run: fleetctl configure",
            details=tuple(f"{r.host}: {r.state}: {r.detail}" for r in bad),
        )
    return results


def note(ports: CapacityPorts, kind: str, text: str, **data: str | int) -> None:
    """Add an event to the fleet's own chain."""
    ports.store.append((Event(at=ports.clock.now(), kind=kind, actor=ports.actor, text=text, data=data),))
