"""Provision and configure, use-case layer: make the plan's pools and prepare their hosts. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Actor, Diagnostic
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import HostResult, Progress, Provisioned, ProvisionFailure, ProvisionPlan
from fleetctl.errors import ConfigureFailed, LeaseHeld, ProvisionFailed
from fleetctl.planning.check_provision import check_provision
from fleetctl.ports.capacity import Configurator, Provisioner
from fleetctl.ports.state import Clock, Held, Lease, Records, Store

POOL_TTL = timedelta(minutes=60)
"""Longest that one run on a pool is expected to hold it; released at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHosts:
    """A pool's hosts as the last provision left them; record kind of its own."""

    pool: PoolId
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionOutcome:
    """What one pool's run came to; `done` is None where only shown or nothing had to change."""

    spec: PoolSpec
    shown: ProvisionPlan
    findings: tuple[Diagnostic, ...]
    done: Provisioned | None
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPorts:
    """All that provision and configure touch."""

    store: Store
    records: Records
    clock: Clock
    provisioner: Callable[[PoolSpec], Provisioner]
    configurator: Configurator
    holder: str
    actor: Actor


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
    if isinstance(lease, Held):
        text = f"{lease.holder} works on {scope} until {lease.until:%H:%M:%S} UTC."
        raise LeaseHeld("lease.held", text, hint="Wait for it, then run the same command again")
    return lease


def provision(
    plan: Plan, fleet: Fleet, run: Path, ports: CapacityPorts, on: Callable[[Progress], None], *, apply: bool = True
) -> tuple[ProvisionOutcome, ...]:
    """Plan, show, check and apply each of the plan's pools; a rerun goes on where the last one stopped.

    Args:
        run: folder for the saved plan files.
        apply: False only shows.

    Raises:
        ProvisionFailed: provision.refused with every finding, or what Terraform said.
    """
    return tuple(_provision_one(spec, plan, fleet, run, ports, on, apply) for spec in plan.pools)


def _provision_one(
    spec: PoolSpec, plan: Plan, fleet: Fleet, run: Path, ports: CapacityPorts, on: Callable[[Progress], None], apply: bool
) -> ProvisionOutcome:
    lease = take(ports, spec.pool)
    try:
        provisioner = ports.provisioner(spec)
        shown = provisioner.plan((spec,), run)
        findings = check_provision(shown, held_pools(plan, fleet))
        errors = tuple(f for f in findings if f.severity == "error")
        if errors:
            raise ProvisionFailed(
                "provision.refused",
                f"the Terraform plan of {spec.pool} would harm what serves; nothing was applied.",
                hint="Look at it: fleetctl provision --dry-run",
                details=tuple(f"{f.path}: {f.text}" for f in errors),
            )
        done: Provisioned | None = None
        if apply and not shown.is_empty:
            done = _apply(spec, shown, provisioner, lease, ports, on)
        hosts = provisioner.outputs(spec.pool)
        if apply:
            ports.records.put(spec.pool, PoolHosts(pool=spec.pool, hosts=hosts))
        return ProvisionOutcome(spec=spec, shown=shown, findings=findings, done=done, hosts=hosts)
    finally:
        ports.store.release(lease)


def _apply(
    spec: PoolSpec, shown: ProvisionPlan, provisioner: Provisioner, lease: Lease, ports: CapacityPorts, on: Callable[[Progress], None]
) -> Provisioned:
    note(ports, "provision.apply", f"{spec.pool}: applying plan file {shown.digest[:12]}", pool=spec.pool, digest=shown.digest)
    done = provisioner.apply(shown, lease.token, on)
    if isinstance(done, ProvisionFailure):
        note(ports, "provision.failed", f"{spec.pool}: {done.text}", pool=spec.pool)
        raise ProvisionFailed(
            done.code,
            f"provisioning {spec.pool} failed: {done.text}",
            hint="What was made is kept in the state; mend the cause, then run: fleetctl provision",
            details=tuple(f"made: {m}" for m in done.made),
        )
    note(ports, "provision.applied", f"{spec.pool}: {done.added} added", pool=spec.pool, added=done.added)
    return done


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
    leases = [take(ports, p.pool) for p in plan.pools]
    try:
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
    """Write one event of the fleet."""
    ports.store.append((Event(at=ports.clock.now(), kind=kind, actor=ports.actor, text=text, data=data),))
