"""Provision, use-case layer: make a plan's pools as a saga that can be stopped anywhere and run again. Never imports an adapter.

Per pool: intent with a unique tag -> clear what an earlier try left -> saved plan -> check -> shown -> apply of that file -> classify
-> remove what it left -> next place. Each step is on record before it is done; nothing is applied that was not shown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

from fleetctl.domain.canonical import digest
from fleetctl.domain.capacity import Attempt, Candidate, Leftover, PlaceFailure, ProvisionIntent, SkuReading, Step
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure, ProvisionPlan
from fleetctl.errors import CapacityUnavailable, CredentialsMissing, FleetctlError, Interrupted, ProvisionFailed
from fleetctl.planning.capacity import ranked, still_open
from fleetctl.planning.check_delta import ALLOWED, check_delta, cost_of_delta
from fleetctl.planning.check_provision import LAB_TYPES, check_provision
from fleetctl.planning.provision_codes import Action
from fleetctl.planning.provision_errors import Trouble, classify
from fleetctl.ports.capacity import Leftovers, Provisioner
from fleetctl.ports.state import Lease
from fleetctl.usecases.capacity import CapacityPorts, PoolHosts, ProvisionOutcome, held_pools, note, still_held, take
from fleetctl.usecases.leftovers import beside, failed_since, in_use, remove
from fleetctl.usecases.provision_causes import all_of, explained, given_up, guarded, no_place, of_disk, standing, stopped

MOST_TRIES = 12
MOST_WAITS = 3
LONGEST_WAIT = timedelta(minutes=5)
OWN_RUN_PATIENCE = timedelta(minutes=50)
"""How long a rerun waits for a Terraform that its killed predecessor left at work; above azurerm's 45 minutes for a machine."""
_LOOK = timedelta(seconds=1)
_EXISTS = re.compile(r'ID\s+"([^"]{1,600})"\s+already exists', re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z_][\w.\[\]\"-]{1,500}\Z")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\Z")
_ELSEWHERE = frozenset({Action.OTHER_PLACE, Action.CLEAN_OTHER_REGION, Action.OTHER_ZONE, Action.RAISE_QUOTA})


@dataclass(slots=True, kw_only=True)
class _Saga:
    """One pool's run (never leaves this step)."""

    spec: PoolSpec
    plan: Plan
    fleet: Fleet
    run: Path
    ports: CapacityPorts
    on: Callable[[Progress], None]
    lease: Lease
    provisioner: Provisioner
    leftovers: Leftovers
    intent: ProvisionIntent
    tried: list[PlaceFailure] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    number: int = 0
    is_unfinished: bool = False
    closed: tuple[str, ...] = ()
    before: frozenset[str] | None = None


def provision(
    plan: Plan,
    fleet: Fleet,
    run: Path,
    ports: CapacityPorts,
    on: Callable[[Progress], None],
    *,
    apply: bool = True,
    refuse: bool = True,
    only: Collection[PoolId] = (),
    done: Callable[[ProvisionOutcome], None] = lambda _: None,
) -> tuple[ProvisionOutcome, ...]:
    """Plan, show, check and apply each of the plan's pools; a rerun goes on where the last one stopped.

    A pool that fails does not keep the others from being made; its error is raised when they are done, or when somebody stops the run.

    Args:
        run: folder for the saved plan files.
        apply: False only shows; refuse: False tells of a plan that must not be applied in the outcome's findings, where it is only shown;
            only: these pools of the plan, () for all; done: called with each pool's outcome.

    Raises:
        ProvisionFailed: provision.refused with every finding, provision.disk_full, provision.provider_missing, provision.exists,
            provision.several, or what Terraform said; CapacityUnavailable: capacity.no, capacity.quota, capacity.exhausted;
            CredentialsMissing: credentials.refused; LeaseHeld: lease.held, lease.lost; PlanStale: provision.stale;
            Interrupted: provision.interrupted, with the pools that had failed before.
    """
    outcomes: list[ProvisionOutcome] = []
    failed: list[tuple[PoolId, FleetctlError]] = []
    for spec in plan.pools:
        if only and spec.pool not in only:
            continue
        try:
            outcomes.append(_pool(spec, plan, fleet, run, ports, on, (apply, refuse)))
            done(outcomes[-1])
        except (Interrupted, KeyboardInterrupt) as e:
            if not failed:
                raise
            raise stopped(spec.pool, e, failed) from None
        except FleetctlError as e:
            failed.append((spec.pool, e))
    if failed:
        raise all_of(failed)
    return tuple(outcomes)


def _pool(
    spec: PoolSpec, plan: Plan, fleet: Fleet, run: Path, ports: CapacityPorts, on: Callable[[Progress], None], how: tuple[bool, bool]
) -> ProvisionOutcome:
    apply, refuse = how
    lease = take(ports, spec.pool)
    try:
        provisioner = ports.provisioner(spec)
        saga = _Saga(
            spec=spec,
            plan=plan,
            fleet=fleet,
            run=run,
            ports=ports,
            on=on,
            lease=lease,
            provisioner=provisioner,
            leftovers=ports.leftovers(spec),
            intent=_intent(spec, fleet, lease, ports, provisioner),
        )
        return _run(saga) if apply else _preview(saga, refuse)
    except ProvisionFailed as e:
        raise explained(e) if e.code == "provision.plan_failed" else e  # noqa: B904 (the same error under the code of its cause)
    except OSError as e:
        raise of_disk(e)  # noqa: B904 (the same error in our words)
    finally:
        ports.store.release(lease)


def _intent(spec: PoolSpec, fleet: Fleet, lease: Lease, ports: CapacityPorts, provisioner: Provisioner) -> ProvisionIntent:
    """Return the pool's intent: the one on record, or a new one, whose tag no other ever had.

    A lease's token is never reused, but each workspace counts its own: the tag also holds who takes it, and when. Where no host is on
    record and a state has some under another tag than ours, they are somebody's: another workspace of the team, or ours before its
    records were lost. They serve, and keep their tag.
    """
    asked = Candidate(sku=spec.sku, region=spec.region, zone=spec.zone, priority=spec.priority)
    last = ports.records.get(ProvisionIntent, spec.pool)
    known = ports.records.get(PoolHosts, spec.pool)
    hosts = known.hosts if known is not None else ()
    found: tuple[Host, ...] = ()
    if not hosts:
        with contextlib.nullcontext() if last is None else contextlib.suppress(ProvisionFailed):  # a Terraform may be at work on it
            found = provisioner.outputs(spec.pool)
    theirs = next((v for h in found for k, v in h.variables if k == "intent" and _TAG.match(v)), "")
    if last is not None:
        others = theirs if theirs != last.tag else ""
        place = last.place if last.asked == asked else asked
        own = last.own and not others
        serves = bool(hosts or (found and not (own and last.fresh)))
        return replace(last, asked=asked, place=place, fresh=not serves, tag=others or last.tag, own=own)
    fresh = not (hosts or found)
    mark = digest([ports.holder, ports.clock.now()])[:8]
    tag = theirs or f"{fleet.lineage[:40]}-{spec.pool}-{lease.token}-{mark}"
    at = ports.clock.now()
    return ProvisionIntent(pool=spec.pool, tag=tag, step="planning", asked=asked, place=asked, at=at, fresh=fresh, own=not theirs)


def _preview(s: _Saga, refuse: bool) -> ProvisionOutcome:
    try:
        shown, findings = _planned(s, s.intent.place, refuse=refuse)
    except ProvisionFailed as e:
        if refuse or e.code != "provision.refused":
            raise
        shown, findings = guarded(s.spec, e)
    return ProvisionOutcome(
        spec=_at(s, s.intent.place),
        shown=shown,
        findings=findings,
        done=None,
        hosts=s.provisioner.outputs(s.spec.pool),
        place=s.intent.place,
        orphans=_orphans(s),
        usd_per_hour=cost_of_delta(shown, s.ports.price(_at(s, s.intent.place))),
    )


def _run(s: _Saga) -> ProvisionOutcome:
    before = s.intent.step
    s.is_unfinished = before in ("applying", "compensating", "failed")
    _put(s, before if s.is_unfinished else "planning")  # an unfinished step stays on record until the next apply, however often we die
    s.ports.reached("intent")
    if before in ("applying", "compensating"):
        _await_own_run(s)
    orphans = _clear(s)
    places = _places(s)
    while True:
        place = places[0]
        came_to = _try(s, place)
        if isinstance(came_to, ProvisionOutcome):
            return replace(came_to, removed=orphans, orphans=() if s.intent.own else _orphans(s))
        places = _next(s, places, came_to)


def _places(s: _Saga) -> tuple[Candidate, ...]:
    """Return the places to try, best first; a pool that has hosts stays where it is."""
    if not s.intent.fresh:
        return (s.intent.place,)
    there = _there(s)
    if there >= s.spec.count:
        return (s.intent.place,)
    stays = there > 0 and s.ports.keeps(s.spec)
    wanted = (s.intent.place,) if stays else tuple(dict.fromkeys((s.intent.place, *s.ports.places(s.spec))))
    source = s.ports.source(s.spec)
    readings: dict[tuple[str, str], SkuReading] = {}
    for place in wanted if source is not None else ():
        if source is not None and (place.sku, place.region) not in readings:
            readings[place.sku, place.region] = source.read(place.sku, place.region)
    here = {s.intent.place: s.spec.count - there}  # what stands there already needs no room; elsewhere all of it does
    rows = ranked(wanted, s.spec.count, readings, s.ports.records.all(PlaceFailure), s.ports.clock.now(), counts=here)
    open_ = tuple(p for p, v in rows if v.kind != "no")
    s.closed = tuple(f"not tried: {p.text}: {'; '.join(v.reasons)}" for p, v in rows if v.kind == "no")
    if open_:
        return open_
    if stays:
        raise _partial(s, there)
    raise CapacityUnavailable(
        "capacity.no",
        f"no place can take {s.spec.count} x {s.spec.sku} for pool {s.spec.pool}; nothing was created now.",
        hint="Run: fleetctl capacity",
        details=(*s.closed, *_standing(s)),
    )


def _there(s: _Saga) -> int:
    """Count the machines of the pool that were made and are in its state, handed out or not."""
    known = s.provisioner.ids(s.spec.pool)
    tagged = s.leftovers.find(s.intent.tag) if known else ()
    return max(len(s.provisioner.outputs(s.spec.pool)), sum(o.kind == "machine" and o.id.lower() in known for o in tagged))


def _partial(s: _Saga, there: int) -> CapacityUnavailable:
    return CapacityUnavailable(
        "capacity.partial",
        f"pool {s.spec.pool}: {there} of {s.spec.count} machines were made in {s.intent.place.text} and are kept; no room for more.",
        hint=f"Wait and run: fleetctl provision. To give them up and move, set pool.{s.spec.pool}.partial: move",
        details=(*_tries(s), *s.closed, *_standing(s)),
    )


def _tries(s: _Saga) -> tuple[str, ...]:
    return tuple(f"{a.place.text}: {a.code}: {a.text}" for a in s.attempts)


def _try(s: _Saga, place: Candidate) -> ProvisionOutcome | Trouble:
    s.number += 1
    shown, findings = _planned(s, place)
    cost = cost_of_delta(shown, s.ports.price(_at(s, place)))
    _put(s, "applying", place=place, digest_=shown.digest)
    s.ports.reached("planned")
    done: Provisioned | None = None
    if not shown.is_empty or shown.outputs_change:
        s.ports.shown(_at(s, place), shown, cost)
        result = s.provisioner.apply(shown, s.lease.token, s.on)
        s.ports.reached("applied")
        if isinstance(result, ProvisionFailure):
            return _failed(s, place, result)
        done = result
        note(s.ports, "provision.applied", f"{s.spec.pool}: {done.added} added at {place.text}", pool=s.spec.pool, added=done.added)
    hosts = s.provisioner.outputs(s.spec.pool)
    s.ports.records.put(s.spec.pool, PoolHosts(pool=s.spec.pool, hosts=hosts))
    _put(s, "done", place=place)
    s.ports.reached("done")
    return ProvisionOutcome(
        spec=_at(s, place),
        shown=shown,
        findings=findings,
        done=done,
        hosts=hosts,
        place=place,
        attempts=tuple(s.attempts),
        usd_per_hour=cost,
    )


def _planned(s: _Saga, place: Candidate, *, refuse: bool = True) -> tuple[ProvisionPlan, tuple[Diagnostic, ...]]:
    spec = _at(s, place)
    try:
        shown = s.provisioner.plan((spec,), s.run)
    except ProvisionFailed as e:
        raise explained(e) from e
    # Only what an unfinished try of ours made, and of which nobody was told, may be made anew elsewhere.
    loose = s.intent.fresh and not spec.hold and (s.number > 1 or s.is_unfinished)
    findings = (
        *check_provision(
            shown,
            held_pools(s.plan, s.fleet),
            allowed_types=ALLOWED.get(shown.stack, LAB_TYPES),
            permitted=(spec.pool,) if loose else (),
        ),
        *check_delta(shown, spec),
    )
    errors = tuple(f for f in findings if f.severity == "error")
    if errors and refuse:
        raise ProvisionFailed(
            "provision.refused",
            f"the Terraform plan of {spec.pool} would harm what serves, or does what was not asked; nothing was applied.",
            hint="Look at it: fleetctl provision --dry-run",
            details=tuple(f"{f.path}: {f.text}" for f in errors),
        )
    return shown, findings


def _failed(s: _Saga, place: Candidate, result: ProvisionFailure) -> Trouble:
    """Put a failed apply on record; return what it means, or raise where nothing else can be tried."""
    trouble = classify(list(result.details) or result.text, priority=place.priority)
    now = s.ports.clock.now()
    s.attempts.append(Attempt(place=place, code=trouble.code, action=trouble.action.value, text=trouble.text, at=now))
    note(s.ports, "provision.failed", f"{s.spec.pool} at {place.text}: {trouble.code}: {trouble.text}", pool=s.spec.pool, code=trouble.code)
    s.on(Progress(subject=place.text, step="refused", state="failed", text=trouble.code or result.code))
    exists = tuple((text.split("\n", 1)[0], m) for text in result.details for m in _EXISTS.findall(" ".join(text.split())))
    if exists and s.number < MOST_TRIES:
        _adopt(s, exists)
        return replace(trouble, action=Action.WAIT_RETRY, wait=timedelta())
    if result.code in {"provision.interrupted", "provision.timeout"} and trouble.action is Action.ASK:
        _put(s, "applying" if result.at_work else "failed", place=place)  # the next run waits for what is at work, then clears
        raise _given_up(s, result.code, result.text)
    if trouble.action in _ELSEWHERE and trouble.block:
        failure = PlaceFailure(place=place, code=trouble.code, scope=trouble.scope, until=now + trouble.block, text=trouble.text)
        s.ports.records.put(digest(place)[:24], failure)
        s.tried.append(failure)
    if trouble.action in {Action.WAIT_RETRY, *_ELSEWHERE}:
        return trouble
    _put(s, "compensating", place=place)
    if trouble.action is Action.FIX_ACCESS:  # whoever is not let in cannot look for leftovers either: the next run does
        text = f"provisioning {s.spec.pool}: the cloud refused the credentials: {trouble.text}"
        hint = "Sign in again (az login, aws sso login), then run: fleetctl provision"
        raise CredentialsMissing("credentials.refused", text, hint=hint, details=_standing(s))
    _compensate(s)
    _put(s, "failed", place=place)
    raise _given_up(s, result.code, result.text)


def _next(s: _Saga, places: Sequence[Candidate], trouble: Trouble) -> tuple[Candidate, ...]:
    """Wait, or remove what was left and return the places that are still open."""
    _put(s, "compensating")
    s.ports.reached("compensating")
    _compensate(s)
    s.ports.reached("compensated")
    if trouble.action is Action.WAIT_RETRY:
        if sum(a.action == Action.WAIT_RETRY.value for a in s.attempts) > MOST_WAITS:
            _put(s, "failed")
            raise _given_up(s, "provision.throttled", trouble.text)
        until = s.ports.clock.now() + min(trouble.wait, LONGEST_WAIT)
        s.ports.clock.wait(until, lambda: False)
        return tuple(places)
    there = _there(s)
    if there and s.intent.fresh and s.ports.keeps(s.spec):
        _put(s, "failed")
        raise _partial(s, there)
    left = still_open(places[1:], s.tried)
    if left and s.intent.fresh and s.number < MOST_TRIES:
        return left
    _put(s, "failed")
    raise no_place(s.spec.pool, trouble, len(s.attempts), (*_tries(s), *s.closed, *_standing(s)))


def _given_up(s: _Saga, code: str, text: str) -> FleetctlError:
    return given_up(s.spec.pool, code, text, _standing(s))


def _standing(s: _Saga) -> tuple[str, ...]:
    """Return what exists of the pool now; what cannot be asked is left out: the failure itself is what must be told."""
    ids: frozenset[str] = frozenset()
    tagged: tuple[Leftover, ...] = ()
    with contextlib.suppress(FleetctlError):
        ids = s.provisioner.ids(s.spec.pool)
    with contextlib.suppress(FleetctlError):
        tagged = s.leftovers.find(s.intent.tag)
    return standing(s.spec.pool, ids, tagged)


def _await_own_run(s: _Saga) -> None:
    """Wait for a Terraform that a killed predecessor left at work: it holds the state's lock, and what it makes is no orphan."""
    until = s.ports.clock.now() + OWN_RUN_PATIENCE
    told = ""
    while True:
        try:
            s.provisioner.plan((_at(s, s.intent.place),), s.run)
        except ProvisionFailed as e:
            if e.code != "provision.locked" or s.ports.clock.now() >= until:
                raise explained(e) from e
            if e.message != told:
                told = e.message
                s.on(Progress(subject=s.spec.pool, step="wait for the last run", state="running", text=told))
            s.ports.clock.wait(s.ports.clock.now() + _LOOK, lambda: False)
        else:
            return


def _orphans(s: _Saga) -> tuple[Leftover, ...]:
    found = s.leftovers.find(s.intent.tag)
    return beside(found, s.provisioner.ids(s.spec.pool)) if found else ()


def _compensate(s: _Saga) -> None:
    """Remove what a refused apply left; where that fails, what the cloud refused before is told too."""
    try:
        _clear(s)
    except (CapacityUnavailable, CredentialsMissing) as e:
        raise type(e)(e.code, e.message, hint=e.hint, details=(*e.details, *_tries(s))) from e


def _clear(s: _Saga) -> tuple[Leftover, ...]:
    """Remove what carries our tag and is in no state: nobody was ever told of it, so nothing can serve on it.

    What a host on record lies in, or is, is never removed: then it is the state that was lost. Where the state holds nothing at all of a
    pool that has hosts, nothing is removed: a group may have replaced the very machines that are on record. Under a tag that this
    workspace did not take only what failed since this run began is removed: the rest may be what another one is making.
    """
    orphans = _orphans(s)
    told = s.ports.records.get(PoolHosts, s.spec.pool)
    hosts = told.hosts if told is not None else ()
    ids = s.provisioner.ids(s.spec.pool) if orphans else frozenset()
    lost = in_use(orphans, ids, hosts) or (orphans if hosts and not ids else ())
    if lost:
        raise ProvisionFailed(
            "provision.state_lost",
            f"hosts of pool {s.spec.pool}, or what they lie in, are not in its Terraform state any more; nothing was touched.",
            hint="Bring the state back (terraform.backend keeps it elsewhere), or import them. Run: fleetctl provision --check",
            details=tuple(o.id for o in lost),
        )
    if not s.intent.own:
        s.before = s.before if s.before is not None else frozenset(o.id for o in orphans)
        orphans = failed_since(orphans, s.before)

    def held() -> None:
        s.lease = still_held(s.ports, s.lease)  # a name may be another run's machine by now

    def gone(o: Leftover) -> None:
        note(s.ports, "provision.orphan_removed", f"{s.spec.pool}: {o.kind} {o.name} ({o.state})", pool=s.spec.pool, id=o.id)

    remove(s.leftovers, orphans, s.on, held, gone)
    return orphans


def _adopt(s: _Saga, exists: Sequence[tuple[str, str]]) -> None:
    """Take into the state what a killed Terraform made and did not write down, where it is part of what is ours.

    What carries our tag is left to `_clear`; what may be somebody else's is left to a person.

    Args:
        exists: address in the plan, and id in the cloud.
    """
    known = s.provisioner.ids(s.spec.pool)
    tagged = {o.id.lower() for o in s.leftovers.find(s.intent.tag)}
    for address, id_ in exists:
        low = id_.lower()
        if low in tagged and s.intent.own:
            continue
        if not _ADDRESS.match(address) or not any(low == k or low.startswith((f"{k}/", f"{k}|")) for k in known if "/providers/" in k):
            raise ProvisionFailed(
                "provision.exists",
                f"{id_} exists already, and fleetctl did not make it; nothing of it was touched.",
                hint="Remove or import it yourself, then run: fleetctl provision",
            )
        s.provisioner.adopt(s.spec.pool, address, id_)
        note(s.ports, "provision.adopted", f"{s.spec.pool}: {address} is {id_}", pool=s.spec.pool, id=id_)


def _at(s: _Saga, place: Candidate) -> PoolSpec:
    return replace(
        s.spec,
        sku=place.sku,
        region=place.region,
        zone=place.zone,
        priority=place.priority,
        intent=s.intent.tag,
        serves=not s.intent.fresh,
    )


def _put(s: _Saga, step: Step, *, place: Candidate | None = None, digest_: str | None = None) -> None:
    s.lease = still_held(s.ports, s.lease)
    s.intent = replace(
        s.intent,
        step=step,
        place=place or s.intent.place,
        digest=s.intent.digest if digest_ is None else digest_,
        at=s.ports.clock.now(),
        attempts=tuple(s.attempts),
    )
    s.ports.records.put(s.spec.pool, s.intent)
