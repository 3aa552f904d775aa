"""Release, use-case layer: give a pool back: ours is destroyed after its checks and approvals, others' is written down for its owner.

Never destroys what fleetctl did not make. The only place where a `ReleasePermit` is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetctl.domain.capacity import Leftover, ProvisionIntent
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.holds import Said
from fleetctl.domain.home import Returned
from fleetctl.domain.ids import CellId, HostId, PoolId
from fleetctl.domain.people import Actor, Facts, Gap
from fleetctl.domain.plan import Approval
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import Drill, Progress, ReleasePermit
from fleetctl.domain.release import FINISHED, Release, ReleaseView
from fleetctl.errors import FleetctlError, LeaseHeld, PlanStale, ProvisionFailed, StillPending
from fleetctl.planning.release_gate import release_checks, role_of, strays
from fleetctl.ports.state import Clock, Lease, Records, Store
from fleetctl.usecases import drills as drills_of
from fleetctl.usecases.capacity import CapacityPorts, PoolHosts, still_held, take
from fleetctl.usecases.home_time import note_home_time
from fleetctl.usecases.leftovers import beside, in_use, remove
from fleetctl.usecases.proof import HOLDS_FOR, Given, Proof, claim, given, refuse_own, signed_by_me, told


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePorts:
    """All that a release touches.

    Args:
        run: folder for what this run writes.
        shown: what a cell's router routes to its target, basis points; None where it does not answer.
        answers: how many a cell's router still has open on a pool; None where nobody can tell.
        look: asks every source of the inventory that can see machines; None where the fleet file names none.
        unhold: puts back the minimum that was held at a pool's autoscaler; raises LeaseHeld.
        proof: checks signatures where the policy asks for them.
    """

    capacity: CapacityPorts
    run: Path
    shown: Callable[[CellId], int | None]
    answers: Callable[[CellId, PoolId], int | None]
    look: Callable[[], tuple[Facts | Gap, ...] | None] = lambda: None
    unhold: Callable[[PoolId], tuple[tuple[CellId, Said], ...]] = lambda _: ()
    proof: Proof | None = None


def view(pool: PoolId, fleet: Fleet, ports: ReleasePorts, *, handoff: bool, gone: Sequence[str] = ()) -> ReleaseView:
    """Return what stands in the way of giving a pool back; changes nothing.

    Args:
        gone: routers that do not answer, and of which a person says that they are gone for good.

    Raises:
        ProvisionFailed: release.not_ours (asked to destroy what others built), release.ours (asked to hand off what we made).
    """
    is_ours = fleet.pool(pool).provisioned_by != "existing"
    if not is_ours and not handoff:
        text = f"fleetctl did not make pool {pool}, and never destroys what it did not make."
        raise ProvisionFailed("release.not_ours", text, hint=f"Write the change for its owner: fleetctl release {pool} --handoff")
    if is_ours and handoff:
        raise ProvisionFailed("release.ours", f"fleetctl made pool {pool}; nobody else owns it.", hint=f"Run: fleetctl release {pool}")
    c = ports.capacity
    store = c.store
    rollouts = {x: r for x in store.cells() if (r := store.load(x)) is not None}
    touched = [*(x for x, r in rollouts.items() if pool in (r.spec.source, r.spec.target)), *strays(pool, fleet, rollouts)]
    role = role_of(pool, fleet, rollouts)
    hosts = _hosts(pool, fleet, c.records)
    last = c.records.get(Release, pool)
    is_handed_over = last is not None and last.kind == "handoff" and last.step in ("handed_over", "gone")
    said = last.gone if last is not None and is_handed_over and not gone else tuple(sorted(set(gone)))
    moves = tuple(sorted(f"{x} {r.plan} {r.attempt}" for x, r in rollouts.items() if pool in (r.spec.source, r.spec.target)))
    alike = last is not None and (last.hosts, last.role, last.gone, last.moves) == (hosts, role, said, moves)
    if last is not None and alike and (is_handed_over or last.step not in FINISHED):
        asked = last
    else:
        kind: Literal["ours", "handoff"] = "handoff" if handoff else "ours"
        asked = Release(pool=pool, kind=kind, hosts=hosts, role=role, asked_by=c.actor, at=c.clock.now(), gone=said, moves=moves)
    drills = drills_of.newest(c.records, store)
    shown = {x: ports.shown(x) for x in touched}
    answers = {x: ports.answers(x, pool) for x, bp in shown.items() if bp is not None and x in rollouts}
    checks = release_checks(pool, fleet, rollouts, shown, drills, c.clock.now(), said, answers=answers)
    approved = _given(asked, fleet, ports)
    missing = 0 if role == "unused" else approved.missing
    standing = _standing(pool, fleet, c, hosts) if is_ours else ()
    return ReleaseView(release=asked, checks=checks, approved_by=approved.people, missing=missing, standing=standing)


def _standing(pool: PoolId, fleet: Fleet, c: CapacityPorts, hosts: Collection[HostId]) -> tuple[str, ...]:
    """Return the machines that a try left for us to keep and nobody was told of; () too where the cloud cannot be asked."""
    intent = c.records.get(ProvisionIntent, pool)
    if intent is None or hosts:
        return ()
    try:
        found = c.leftovers(_spec(pool, fleet)).find(intent.tag)
    except FleetctlError:
        return ()
    return tuple(sorted(o.name for o in found if o.kind == "machine"))


def _spec(pool: PoolId, fleet: Fleet) -> PoolSpec:
    p = fleet.pool(pool)
    return PoolSpec(pool=p.id, vendor=p.vendor, sku=p.sku, region=p.region, count=0, stack=p.provisioned_by)


def _hosts(pool: PoolId, fleet: Fleet, records: Records) -> tuple[HostId, ...]:
    made = records.get(PoolHosts, pool)
    return tuple(h.id for h in (*(made.hosts if made is not None else ()), *(h for h in fleet.hosts if h.pool == pool)))


def _given(release: Release, fleet: Fleet, ports: ReleasePorts) -> Given:
    c = ports.capacity
    return given(release.id, release.digest, fleet.policy, c.records, ports.proof, author=release.asked_by.name)


def ask(found: ReleaseView, fleet: Fleet, ports: ReleasePorts) -> None:
    """Put a wish on record, so that others can approve it; again does nothing.

    Raises:
        StillPending: pending.release with every check that does not hold, or the approvals that are missing.
    """
    c, release = ports.capacity, found.release
    open_ = tuple(f"{k.name}: {k.detail}" for k in found.checks if not k.ok)
    if open_:
        text = f"pool {release.pool} cannot be given back yet; nothing was changed."
        raise StillPending("pending.release", text, hint="Mend these, then run the same command again", details=open_)
    if c.records.get(Release, release.pool) != release:
        c.records.put(release.pool, release)
        claim(release.id, release.digest, fleet, c.records, ports.proof, c.actor)
        _note(c.store, c.clock, c.actor, "release.asked", f"{release.pool} ({release.kind})", release)
    missing = _given(release, fleet, ports).missing if found.missing else 0  # whoever asks has just signed as its author
    if missing:
        more = f"{missing} more {'person' if missing == 1 else 'people'}"
        text = f"giving back pool {release.pool} needs {more}; nothing was changed."
        raise StillPending("pending.release", text, hint=f"Somebody other than {release.asked_by.name}: fleetctl approve {release.id}")


def open_release(id_: str, records: Records) -> Release:
    """Return a release that was asked for and is not over. Raises PlanStale (release.missing)."""
    release = next((r for r in records.all(Release) if r.id == id_ and r.step not in FINISHED), None)
    if release is None:
        raise PlanStale("release.missing", f"there is no open release {id_}.", hint="Run: fleetctl release POOL")
    return release


def approve_release(
    id_: str, records: Records, store: Store, clock: Clock, actor: Actor, note: str, fleet: Fleet | None = None, proof: Proof | None = None
) -> Release:
    """Record a person's yes to exactly one release; by their key where the policy of the fleet asks for signatures.

    Raises:
        PlanStale: release.missing, release.author (whoever asked for it cannot approve it), approve.author; CredentialsMissing: approve.*.
    """
    release = open_release(id_, records)
    if fleet is not None and fleet.policy.require_signatures:
        until = clock.now() + HOLDS_FOR
        draft = Approval(plan=release.id, plan_digest=release.digest, actor=actor, at=clock.now(), note=note, serial=fleet.serial)
        own = signed_by_me(replace(draft, until=until), proof)
        if own.actor.name in given(release.id, release.digest, fleet.policy, records, proof).authors:
            refuse_own(f"release {id_}", own.actor.name, id_)
        records.put(f"{release.id}-{own.actor.name}", own)
        store.append((told(own, "release.approved", f"{release.pool}", pool=release.pool, release=release.id),))
        return release
    if actor.name == release.asked_by.name:
        text = f"{actor.name} asked for release {id_}; its second person is somebody else."
        raise PlanStale("release.author", text, hint=f"Somebody else: fleetctl approve {id_}")
    approval = Approval(plan=release.id, plan_digest=release.digest, actor=actor, at=clock.now(), note=note)
    records.put(f"{release.id}-{actor.name}", approval)
    _note(store, clock, actor, "release.approved", f"{release.pool}", release)
    return release


def destroy(found: ReleaseView, fleet: Fleet, ports: ReleasePorts, on: Callable[[Progress], None]) -> tuple[Leftover, ...]:
    """Destroy what we made of a pool, and look that nothing of it is left; running it again goes on.

    A person may think for an hour before the name is typed, and customers may have come home meanwhile: all is looked at again.

    Args:
        found: as `view` returned it for this very run; everything was confirmed by the person.

    Returns:
        What was found by tag beside the state, and removed.

    Raises:
        StillPending: pending.release; ProvisionFailed: release.unknown, release.unplanned, release.not_gone,
            provision.destroy_failed, provision.locked; LeaseHeld: lease.held.
    """
    ask(found, fleet, ports)
    c, release = ports.capacity, found.release
    if release.kind != "ours":
        raise ValueError("a handoff is never destroyed by us")
    pool = fleet.pool(release.pool)
    spec = _spec(pool.id, fleet)
    lease = take(c, release.pool)
    try:
        _require_known(spec, c)
        now = view(pool.id, fleet, ports, handoff=False, gone=release.gone)
        if now.release.digest != release.digest:
            text = f"the hosts of {pool.id}, or what serves on them, have changed since the release was asked for."
            raise PlanStale("release.changed", text, hint=f"Run: fleetctl release {pool.id}")
        ask(now, fleet, ports)
        c.records.put(pool.id, replace(release, step="destroying"))
        said = [a for a in c.records.all(Approval) if (a.plan, a.plan_digest, a.role) == (release.id, release.digest, "approves")]
        counted = [a for a in said if a.actor.name in now.approved_by]
        own = Approval(plan=release.id, plan_digest=release.digest, actor=c.actor, at=c.clock.now(), note="confirmed by name")
        permit = ReleasePermit(pool=pool.id, approvals=(*counted, own), drill="; ".join(k.detail for k in now.checks if "drill" in k.name))
        gone = (*_destroyed(spec, permit, c, lease, on), *_sweep(spec, c, lease, on))
        _unhold(release, ports)
        c.records.put(pool.id, PoolHosts(pool=pool.id, hosts=()))
        _forget_place(c, pool.id)
        c.records.put(pool.id, replace(release, step="done"))
        _note(c.store, c.clock, c.actor, "release.done", f"{pool.id}: {len(release.hosts)} hosts destroyed", release)
    finally:
        c.store.release(lease)
    return gone


def _require_known(spec: PoolSpec, c: CapacityPorts) -> None:
    """Refuse to call a pool destroyed of which this workspace knows nothing: another one may have made it, and keep its state.

    Raises:
        ProvisionFailed: release.unknown.
    """
    if c.records.get(ProvisionIntent, spec.pool) is not None or c.records.get(PoolHosts, spec.pool) is not None:
        return
    if not c.provisioner(spec).ids(spec.pool):
        text = f"this workspace never made pool {spec.pool}, and has no Terraform state of it; nothing was changed."
        hint = f"Where another workspace made it, run there: fleetctl release {spec.pool}"
        raise ProvisionFailed("release.unknown", text, hint=hint)


def _forget_place(c: CapacityPorts, pool: PoolId) -> None:
    """Forget where a pool was made, once it is gone."""
    last = c.records.get(ProvisionIntent, pool)
    if last is not None:
        c.records.put(pool, replace(last, step="done", place=last.asked, fresh=True))


def _destroyed(
    spec: PoolSpec, permit: ReleasePermit, c: CapacityPorts, lease: Lease, on: Callable[[Progress], None]
) -> tuple[Leftover, ...]:
    """Destroy what the state holds; where what no state knows stands in the way (in the resource group), that first. Return the latter."""
    provisioner, intent = c.provisioner(spec), c.records.get(ProvisionIntent, spec.pool)
    try:
        provisioner.destroy(spec.pool, permit)
    except ProvisionFailed as e:
        if e.code != "provision.destroy_failed" or intent is None:
            raise
        leftovers = c.leftovers(spec)
        known = provisioner.ids(spec.pool)
        found = beside(leftovers.find(intent.tag), known)
        stays = in_use(found, known, ())
        loose = tuple(o for o in found if o not in stays)
        if not loose:
            raise
        remove(leftovers, loose, on, _renewing(c, lease), lambda _: None)
        provisioner.destroy(spec.pool, permit)
        return loose
    return ()


def _renewing(c: CapacityPorts, lease: Lease) -> Callable[[], None]:
    """Return what asks for the lease before each removal."""
    held = [lease]

    def ask_again() -> None:
        held[0] = still_held(c, held[0])

    return ask_again


def _sweep(spec: PoolSpec, c: CapacityPorts, lease: Lease, on: Callable[[Progress], None]) -> tuple[Leftover, ...]:
    """Remove what carries the pool's tag though no state had it; then look that nothing does any more."""
    intent = c.records.get(ProvisionIntent, spec.pool)
    if intent is None:
        return ()
    leftovers = c.leftovers(spec)
    loose = beside(leftovers.find(intent.tag), ())
    remove(leftovers, loose, on, _renewing(c, lease), lambda _: None)
    still = leftovers.find(intent.tag) if loose else ()
    if still:
        text = f"pool {spec.pool} was destroyed, but {len(still)} things with its tag are still there."
        raise ProvisionFailed(
            "release.not_gone", text, hint="Run the same command again, or remove them", details=tuple(o.id for o in still)
        )
    return loose


def _unhold(release: Release, ports: ReleasePorts) -> tuple[Said, ...]:
    """Put the pool's held minimum back, and that on record: soak is over, the drill is green, people approved."""
    c = ports.capacity
    try:
        told = ports.unhold(release.pool)
    except LeaseHeld as e:
        hint = f"Run again: fleetctl release {release.pool}{' --handoff' if release.kind == 'handoff' else ''}"
        raise LeaseHeld(e.code, e.message, hint=hint) from None
    c.store.append(tuple(Event(at=c.clock.now(), kind=s.kind, actor=c.actor, text=s.text, cell=cell) for cell, s in told))
    return tuple(s for _, s in told)


def hand_over(found: ReleaseView, fleet: Fleet, ports: ReleasePorts) -> tuple[Said, ...]:
    """Put on record that the change was written for the owner, and give back the minimum that was held against its autoscaler.

    Not only once its machines are gone: as long as the minimum stands, the owner's own autoscaler cannot take them.

    Returns:
        What became of each minimum.

    Raises:
        StillPending: pending.release; LeaseHeld: lease.held.
    """
    ask(found, fleet, ports)
    c = ports.capacity
    told = _unhold(found.release, ports)
    if found.release.step == "asked":
        c.records.put(found.release.pool, replace(found.release, step="handed_over"))
        _note(c.store, c.clock, c.actor, "release.handed_over", f"{found.release.pool}", found.release)
    return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What the inventory's sources say of a pool that was handed over.

    Args:
        still: machines that are there yet, as "name (source)"; blind: why nothing is proven, "" where it is.
    """

    still: tuple[str, ...]
    blind: str = ""

    @property
    def is_gone(self) -> bool:
        """Tell whether its machines are known to be gone."""
        return not self.still and not self.blind


def verify(release: Release, fleet: Fleet, ports: ReleasePorts) -> Verified:
    """Look whether a handed-over pool's machines are gone; a source that cannot be read, or never saw them, proves nothing.

    A machine is the pool's by its tag, by a host's name or address, or by its size and region where no other pool has these.
    """
    c, seen = ports.capacity, ports.look()
    if seen is None:
        return Verified(still=(), blind="the fleet file names no source that sees its machines (sources: azure, aws, ...)")
    release = c.records.get(Release, release.pool) or release
    gaps = [g for g in seen if isinstance(g, Gap)]
    facts = [f for f in seen if isinstance(f, Facts)]
    still = tuple(sorted({f"{_name(f)} ({f.source})" for f in facts if _is_of(f, release, fleet)}))
    if still:
        if not release.seen:
            c.records.put(release.pool, replace(release, seen=True))
        return Verified(still=still)
    if gaps:
        return Verified(still=(), blind=f"{gaps[0].source} could not tell: {gaps[0].reason}")
    if not release.seen:
        text = "no source has seen its machines since it was handed over, so none can tell that they are gone; do the sources look there?"
        return Verified(still=(), blind=text)
    if release.step != "gone":
        c.records.put(release.pool, replace(release, step="gone"))
        _note(c.store, c.clock, c.actor, "release.gone", f"{release.pool}: no source sees its machines any more", release)
    return Verified(still=())


def _is_of(f: Facts, release: Release, fleet: Fleet) -> bool:
    said = {k: str(v) for k, v in f.values.items() if v is not None}
    if "machine" not in said or said.get("state") in ("terminated", "deleted"):
        return False
    if said.get("pool") == release.pool:
        return True
    addresses = {h.address for h in fleet.hosts if h.pool == release.pool}
    words = {*said.get("name", "").split(), *said.get("address", "").split()}
    if words & ({*release.hosts} | addresses):
        return True
    pool = fleet.pool(release.pool)
    alike = [p for p in fleet.pools if (p.sku.casefold(), p.region.casefold()) == (pool.sku.casefold(), pool.region.casefold())]
    same = (said.get("sku", "").casefold(), said.get("region", "").casefold()) == (pool.sku.casefold(), pool.region.casefold())
    return same and len(alike) == 1 and "pool" not in said


def _name(f: Facts) -> str:
    return (str(f.values.get("name") or "").split() or [str(f.values.get("machine"))])[0]


def rehearsed(results: Iterable[Returned], records: Records, store: Store, clock: Clock, actor: Actor) -> None:
    """Keep each return from customers on the target as a rehearsal: what was measured then is what the release gate asks for."""
    for r in results:
        if r.router:
            note_home_time(records, r.router, r.router_ms, clock.now())
        if r.was_bp > 0:
            is_whole = r.source_proven and r.is_home
            why = r.unseen or "the source was not proven healthy"
            text = "" if is_whole else why if r.left_bp == 0 else "the source could not take all of it"
            drill = Drill(at=clock.now(), actor=actor, ms_to_zero=r.ms_to_zero, ok=is_whole, detail=text, cell=r.cell)
            drills_of.keep(drill, records, store)


def machines_only(seen: Sequence[Facts | Gap]) -> tuple[Facts | Gap, ...]:
    """Return the facts of machines, and the gaps."""
    return tuple(x for x in seen if isinstance(x, Gap) or "machine" in x.values)


def _note(store: Store, clock: Clock, actor: Actor, kind: str, text: str, release: Release) -> None:
    data = {"pool": release.pool, "release": release.id, "digest": release.digest}
    data |= {"routers_gone": ", ".join(release.gone)} if release.gone else {}
    store.append((Event(at=clock.now(), kind=kind, actor=actor, text=text, data=data),))
