"""Inventory, formats layer: what the shape of a fleet file cannot say: names that must exist, orders that must hold. Never raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf

from fleetctl.domain.evidence import LADDER_METRICS
from fleetctl.domain.workload import REFUSALS, model_guardrails
from fleetctl.formats import quantities as q
from fleetctl.formats.cohort_checks import check_cohorts
from fleetctl.formats.evidence_sources import LOG, LOGS, check_evidence, metrics_of
from fleetctl.formats.fleet_schema import (
    CellShape,
    CommitmentShape,
    EvidenceShape,
    NotifyShape,
    PathShape,
    PolicyShape,
    PoolShape,
    RouterShape,
    SourceShape,
    StepShape,
    WorkloadShape,
)
from fleetctl.formats.guardrail_names import FINISH_REASONS
from fleetctl.formats.notify_channels import check_notify
from fleetctl.formats.pool_words import check_pool_words
from fleetctl.formats.router_checks import check_routers
from fleetctl.formats.sources import check_source
from fleetctl.formats.yaml_source import Path

Finding = tuple[Path, str]
LAST_YEAR = 2999
"""In which a freeze window may end: what waits for it is dated after it, and dates end with the year 9999."""
EXISTING = "existing"
TARGET_SPEED = "target_speed"
"""Key of a workload's serving section: the user's own factor."""
MOST_RATIO, MOST_POINTS = 5.0, 0.5
"""Largest margins that can mean anything: six times as slow, half of all requests."""
_PHASES = ("preflight", "shadow", "canary", "ramp", "full", "soak", "complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What could be read of a file, and every name it declares (also of parts that are wrong in themselves)."""

    pools: Mapping[str, PoolShape]
    workloads: Mapping[str, WorkloadShape]
    cells: Mapping[str, CellShape]
    routers: Mapping[str, RouterShape]
    commitments: Mapping[int, CommitmentShape]
    paths: Mapping[int, PathShape]
    policy: PolicyShape | None
    steps: Mapping[int, StepShape]
    names: Mapping[str, frozenset[str]]
    sources: Mapping[str, SourceShape]
    evidence: Mapping[str, EvidenceShape]
    notify: Mapping[str, NotifyShape]
    settings: Mapping[str, str]


_TELLS_REASONS = frozenset({"probes", "replay", "recording"})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean ...?)" or nothing."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check(parts: Parts) -> Iterator[Finding]:
    """Yield every mistake between the parts of a file."""
    yield from _pools(parts)
    for name, cell in parts.cells.items():
        yield from _cell(name, cell, parts)
        if cell.on_source_loss == "shed_by_class":
            text = "shed_by_class is not built: declare hold_cap or lift_after_two_signatures, and what is declared is done"
            yield ("cells", name, "on_source_loss"), text
    for name, source in parts.sources.items():
        for place, text in check_source(source.kind, source.settings, source.secrets):
            yield ("sources", name, *place), text
    for name, evidence in parts.evidence.items():
        if name == LOG:
            yield ("evidence", name), "log is the routers' own: choose another name"
        for place, text in check_evidence(evidence.kind, evidence.settings, evidence.secrets):
            yield ("evidence", name, *place), text
    for name, told in parts.notify.items():
        for text in check_notify(told.kind, told.settings, told.secrets):
            yield ("notify", name), text
    existing = {name for name, p in parts.pools.items() if p.provisioned_by == EXISTING}
    yield from check_pool_words(parts.settings, parts.names["pools"], parts.sources, existing)
    yield from _same_place(parts)
    yield from check_cohorts(parts.cells, parts.workloads, parts.routers)
    has_shadow = any(step.phase == "shadow" for step in parts.steps.values())
    yield from check_routers(parts.cells, parts.workloads, parts.routers, has_shadow=has_shadow)
    yield from _after_each_other(parts)
    required = parts.policy.checks.required if parts.policy is not None else ()
    for name, workload in parts.workloads.items():
        yield from _target_speed(workload, ("workloads", name, "serving", TARGET_SPEED))
        if "accuracy" in required and workload.checks.accuracy is None:
            yield ("workloads", name, "checks"), "the policy requires accuracy: name its items, checks: {accuracy: {items: FILE}}"
    yield from _paths(parts.paths)
    for i, commitment in parts.commitments.items():
        yield from _commitment(commitment, ("commitments", i), parts)
    if parts.policy is not None:
        yield from _policy(parts.policy)
        yield from _regions(parts.policy, parts)
    yield from _steps(parts)


def _target_speed(w: WorkloadShape, here: Path) -> Iterator[Finding]:
    text = w.serving.get(TARGET_SPEED)
    if text is None:
        return
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < inf:
        yield here, f"must be a number above 0 (times the speed of the source's accelerator), not {text!r}"


def _regions(policy: PolicyShape, parts: Parts) -> Iterator[Finding]:
    """Yield regions of the policy in which no pool is: a limit that would bind nothing."""
    known = {p.region for p in parts.pools.values()}
    for key, regions in (("power_kw", policy.power_kw), ("cooling", policy.cooling)):
        for region in regions:
            if known and region not in known:
                near = did_you_mean(region, known) or f"; pools are in {', '.join(sorted(known)[:8])}"
                yield ("policy", key, region), f"no pool is in a region named {region!r}{near}"


def _paths(paths: Mapping[int, PathShape]) -> Iterator[Finding]:
    """Yield ways between two regions that are declared twice; the order of the two does not matter."""
    seen: dict[frozenset[str], int] = {}
    for i, path in paths.items():
        pair = frozenset(path.between)
        if pair in seen:
            yield ("paths", i, "between"), f"the way between {' and '.join(path.between)} stands in row {seen[pair] + 1} already"
        seen.setdefault(pair, i)


def _commitment(c: CommitmentShape, here: Path, parts: Parts) -> Iterator[Finding]:
    if (c.pool is None) == (c.scope is None):
        yield here, "needs either a pool or a scope"
    if c.pool is not None:
        yield from _known("pools", c.pool, (*here, "pool"), parts)
        of = parts.pools.get(c.pool)
        if of is not None and c.count is not None and c.count > of.limit:
            yield (*here, "count"), f"{c.count} is above the limit of {of.limit} of pool {c.pool!r}"
    if c.scope is not None:
        for pool in c.scope.pools:
            yield from _known("pools", pool, (*here, "scope", "pools"), parts)
        if not (c.scope.clouds or c.scope.regions or c.scope.skus or c.scope.pools):
            yield (*here, "scope"), "names nothing; give clouds, regions, skus or pools"
    if c.spend is not None:
        if c.count is not None or c.hourly is not None or c.of is not None or c.pool is not None:
            yield (*here, "spend"), "goes with scope and discount alone"
        if c.discount is not None and c.discount >= 1:
            yield (*here, "discount"), "must be below 100%"
    elif c.count is None or c.hourly is None:
        yield here, "needs count and hourly (of VMs), or spend (money an hour)"
    if c.discount is not None and c.spend is None:
        yield (*here, "discount"), "goes with spend alone; hourly is what a VM costs"
    for paid, key in ((c.hourly, "hourly"), (c.spend, "spend")):
        if paid is not None and c.scope is not None and (paid.amount <= 0 or paid.currency != "USD"):
            yield (*here, key), "must be above 0 and in USD, as all prices here are"


def _known(section: str, name: str, path: Path, parts: Parts) -> Iterator[Finding]:
    known = parts.names[section]
    if name not in known:
        yield path, f"no {section.removesuffix('s')} is named {name!r}{did_you_mean(name, known)}"


def _pools(parts: Parts) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name, pool in parts.pools.items():
        if pool.count > pool.limit:
            yield ("pools", name, "count"), f"{pool.count} is above the limit of {pool.limit}"
        if pool.price_usd_per_hour == 0:
            yield ("pools", name, "price_usd_per_hour"), "must be above 0; leave it out where no price is known, then the list price counts"
        if len(pool.hosts) > pool.count:
            yield ("pools", name, "hosts"), f"{len(pool.hosts)} hosts in a pool whose count is {pool.count}"
        for host in pool.hosts:
            if host in seen:
                yield ("pools", name, "hosts", host), f"the host stands in pool {seen[host]!r} already"
            seen[host] = name


def _cell(name: str, cell: CellShape, parts: Parts) -> Iterator[Finding]:
    here: Path = ("cells", name)
    yield from _known("workloads", cell.workload, (*here, "workload"), parts)
    yield from _known("pools", cell.source, (*here, "source"), parts)
    source = parts.pools.get(cell.source)
    if source is not None and source.region != cell.region:
        yield (*here, "source"), f"pool {cell.source!r} is in region {source.region}, the cell in {cell.region}"
    yield from _target(name, cell, parts)
    if cell.router.name == EXISTING and EXISTING not in parts.names["routers"]:
        if len(parts.names["routers"]) != 1:
            yield (*here, "router"), f"existing needs exactly one router in the file, there are {len(parts.names['routers'])}: name one"
    else:
        yield from _known("routers", cell.router.name, (*here, "router", "name"), parts)
    for arm in ("baseline_endpoints", "canary_endpoints"):
        yield from _twice(getattr(cell.router, arm), (*here, "router", arm), q.place_of)
    baseline = {q.place_of(e) for e in cell.router.baseline_endpoints}
    both = {e for e in cell.router.canary_endpoints if q.place_of(e) in baseline}
    if both:
        yield (*here, "router", "canary_endpoints"), f"{', '.join(sorted(both))} stands on both sides"
    yield from _evidence(cell, here, parts)
    if cell.lane.kind != "own":
        for key in ("reason", "actor"):
            if not getattr(cell.lane, key).strip():
                yield (*here, "lane"), f"the lane {cell.lane.kind} needs {'a reason' if key == 'reason' else 'an actor'}: add {key}"
    if cell.lane.bake and cell.lane.kind != "accepted":
        yield (*here, "lane", "bake"), f"only the lane accepted has a bake time of its own, not {cell.lane.kind}"


def _evidence(cell: CellShape, here: Path, parts: Parts) -> Iterator[Finding]:
    """Yield what a cell's sources cannot tell though its workload is judged on it."""
    place = (*here, "evidence")
    yield from _twice(cell.evidence, place)
    if not cell.evidence:
        yield place, "must name at least one source, such as log"
    for i, name in enumerate(cell.evidence):
        if name != LOG and name not in parts.names["evidence"]:
            known = {LOG, *parts.names["evidence"]}
            yield (*place, i), f"no evidence is named {name!r}{did_you_mean(name, known)}"
    first = parts.evidence.get(cell.evidence[0]) if cell.evidence else None
    if first is not None and first.kind == LOGS:
        yield (*place, 0), f"{cell.evidence[0]} counts no requests: name another source first, such as log"
    workload = parts.workloads.get(cell.workload)
    kinds = {name: e.kind for name, e in parts.evidence.items()}
    yield from _probes_and_replay(cell, kinds, place, has_shadow=workload is None or workload.shadow is not None)
    if workload is None or cell.lane.kind == "stay":
        return
    told, exact = metrics_of(kinds, tuple(cell.evidence), streaming=workload.traffic.streaming)
    counters = {k.replace("counter.", "counter_", 1) for n in cell.evidence if n in parts.evidence for k in parts.evidence[n].settings}
    for guardrail in workload.guardrails:
        if guardrail in LADDER_METRICS and guardrail != "latency" and guardrail not in told:
            yield (
                place,
                f"the workload is judged on {guardrail}, which none of {', '.join(cell.evidence)} tells: add a source of kind probes",
            )
        elif guardrail in LADDER_METRICS and guardrail in told and guardrail not in exact and cell.lane.kind == "own":
            yield (
                place,
                f"buckets can show that {guardrail} is worse and no percentage, so it could never PASS: add a source of kind probes",
            )
        elif guardrail.startswith("model_") and guardrail not in {g for a in workload.adapters for g in model_guardrails(a)}:
            yield place, f"the workload is judged on {guardrail}, and none of its adapters has that name"
        elif guardrail.startswith("counter_") and guardrail not in counters:
            yield place, f"the workload is judged on {guardrail}, and no source of this cell has a setting counter.{guardrail[8:]}"
        elif why := _share_that_nobody_tells(guardrail, cell, workload, kinds, told):
            yield place, f"the workload is judged on {guardrail}, {why}"


def _share_that_nobody_tells(
    guardrail: str, cell: CellShape, workload: WorkloadShape, kinds: Mapping[str, str], told: frozenset[str]
) -> str:
    """Return why a share could never be counted, "" where it can: what nobody counts is no zero."""
    others = [name for name in cell.evidence[1:] if name != LOG or cell.lane.kind != "replay"]
    if guardrail == "slo_misses" and workload.slo.latency is None:
        return "and no latency was promised: declare slo.latency"
    if guardrail == "slo_misses" and "latency" not in told:
        return f"and none of {', '.join(cell.evidence)} tells the time of whole answers: leave it out"
    if guardrail == REFUSALS and cell.lane.kind == "replay":
        return "and what is replayed is no client's own request: leave it out"
    if guardrail == REFUSALS and LOG not in cell.evidence:
        return f"and none of {', '.join(cell.evidence)} tells what was refused: add log"
    if guardrail == "quality" and workload.shadow is None:
        return "and no answers are compared: declare shadow"
    if guardrail.startswith("errors_") and guardrail.removeprefix("errors_") not in others:
        name = guardrail.removeprefix("errors_")
        return f"and {name!r} is no source of this cell beside the first{did_you_mean(name, others)}"
    if guardrail.startswith("finish_"):
        reason = guardrail.removeprefix("finish_")
        if not any(kinds.get(name) in _TELLS_REASONS for name in cell.evidence):
            return f"and none of {', '.join(cell.evidence)} tells finish reasons: add a source of kind probes"
        if reason not in FINISH_REASONS and did_you_mean(reason, FINISH_REASONS):
            return f"and no engine ends answers with {reason!r}{did_you_mean(reason, FINISH_REASONS)}"
    return ""


def _probes_and_replay(cell: CellShape, kinds: Mapping[str, str], place: Path, *, has_shadow: bool) -> Iterator[Finding]:
    """Yield what stands against probes and replays as they are named: they ask both arms alike, whatever weight is set."""
    first, *_ = cell.evidence or [LOG]
    replays = [name for name in cell.evidence if kinds.get(name) == "replay"]
    if kinds.get(first) == "probes":
        yield (*place, 0), f"{first} asks both arms alike, so it cannot tell the share that was served: name it after log"
    if cell.lane.kind != "replay":
        for name in replays:
            yield place, f"{name} is of kind replay, which only the lane replay uses, not {cell.lane.kind}"
        return
    if len(replays) != 1:
        yield place, f"the lane replay needs one source of kind replay, there are {len(replays)}"
    if LOG not in cell.evidence:
        yield place, "the lane replay needs log beside it: customers' own failures must trip the breaker"
    if not has_shadow:
        yield ("workloads", cell.workload), "no copies may be made of its requests, and a cell of it has the lane replay: declare shadow"


def _target(name: str, cell: CellShape, parts: Parts) -> Iterator[Finding]:
    target, here = cell.target, ("cells", name, "target")
    if target is None:
        return
    if (target.pool is None) == (target.existing is None):
        yield here, "must name one pool: POOL, or {existing: POOL}"
        return
    if target.pool == EXISTING and EXISTING not in parts.names["pools"]:
        found = existing_targets(cell, parts.pools)
        if len(found) != 1:
            yield (
                here,
                f"existing needs exactly one pool of the other vendor in {cell.region} with provisioned_by: existing, "
                f"there are {len(found)}: write {{existing: POOL}}",
            )
        return
    pool_name = target.existing or target.pool or ""
    yield from _known("pools", pool_name, here, parts)
    pool, source = parts.pools.get(pool_name), parts.pools.get(cell.source)
    if pool is None:
        return
    if pool_name == cell.source:
        yield here, f"is the source too ({pool_name!r})"
    elif source is not None and pool.vendor == source.vendor:
        yield here, f"pool {pool_name!r} is of the same vendor as the source ({pool.vendor})"
    if pool.region != cell.region:
        yield here, f"pool {pool_name!r} is in region {pool.region}, the cell in {cell.region}"


def existing_targets(cell: CellShape, pools: Mapping[str, PoolShape]) -> tuple[str, ...]:
    """Return the pools that a bare `target: existing` may mean: same region, other vendor than the source, built by others."""
    source = pools.get(cell.source)
    return tuple(
        name
        for name, pool in pools.items()
        if pool.region == cell.region and pool.provisioned_by == EXISTING and source is not None and pool.vendor != source.vendor
    )


def _same_place(parts: Parts) -> Iterator[Finding]:
    seen: dict[tuple[str, str], str] = {}
    for name, cell in parts.cells.items():
        place = (cell.workload, cell.region)
        if place in seen:
            yield (
                ("cells", name),
                f"workload {cell.workload!r} in region {cell.region} is cell {seen[place]!r} already: a cell is a workload in one region",
            )
        seen.setdefault(place, name)


def _after_each_other(parts: Parts) -> Iterator[Finding]:
    """Yield unknown names under `after`, and circles."""
    after = {name: tuple(w.after) for name, w in parts.workloads.items()}
    for name, others in after.items():
        for i, other in enumerate(others):
            yield from _known("workloads", other, ("workloads", name, "after", i), parts)
    for name in after:
        seen, todo = set[str](), list(after[name])
        while todo:
            at = todo.pop()
            if at == name:
                yield ("workloads", name, "after"), f"{name!r} waits for itself: a circle"
                break
            if at not in seen:
                seen.add(at)
                todo.extend(after.get(at, ()))


def _twice(items: Iterable[str], path: Path, spelt: Callable[[str], str] = str) -> Iterator[Finding]:
    seen: set[str] = set()
    for i, item in enumerate(items):
        if spelt(item) in seen:
            yield (*path, i), f"{item!r} stands here twice"
        seen.add(spelt(item))


def _policy(policy: PolicyShape) -> Iterator[Finding]:
    yield from _twice(policy.order, ("policy", "order"))
    for key in ("weight_lease", "step_deadline", "lost_evidence_home", "horizon"):
        if getattr(policy, key).total_seconds() < 1:
            yield ("policy", key), "must be at least 1s"
    if policy.home_within is not None and policy.home_within.total_seconds() <= 0:
        yield ("policy", "home_within"), "must be above 0"
    for i, window in enumerate(policy.freeze):
        if window.end <= window.start:
            yield ("policy", "freeze", i, "end"), f"the window {window.name!r} ends before it starts"
        elif window.end.year > LAST_YEAR:
            yield ("policy", "freeze", i, "end"), f"the window {window.name!r} must end by {LAST_YEAR}; to move nothing: lane `stay`"


def _steps(parts: Parts) -> Iterator[Finding]:
    before: StepShape | None = None
    cap = parts.policy.cap if parts.policy else 10_000
    for i, step in parts.steps.items():
        here: Path = ("policy", "steps", i)
        if step.weight > cap:
            yield (*here, "weight"), f"{q.format_share(step.weight)} is above the cap of {q.format_share(cap)}"
        if step.phase in {"preflight", "shadow"} and step.weight:
            yield (*here, "weight"), f"{step.phase} serves no customer: its weight must be 0%"
        if step.phase not in {"preflight", "shadow"} and not step.weight:
            yield (*here, "weight"), f"{step.phase} needs a weight above 0%"
        if step.phase == "complete" and step.weight != 10_000:
            yield (*here, "weight"), "complete means 100%"
        if before is not None:
            yield from _after(before, step, here)
        for name, margin in (step.guardrails or {}).items():
            yield from _margin(name, margin.margin, margin.fail_margin, (*here, "guardrails", name))
        before = step
    if parts.steps and not any(step.phase == "canary" for step in parts.steps.values()):
        yield ("policy", "steps"), "there is no canary step"
    yield from _judged_nowhere(parts)


def _judged_nowhere(parts: Parts) -> Iterator[Finding]:
    """Yield guardrails of workloads that every step leaves out by naming others."""
    steps = [s.guardrails for s in parts.steps.values() if s.phase in {"canary", "ramp", "full", "soak"}]
    if not steps or any(named is None for named in steps):
        return
    named = {name for step in steps for name in step or {}}
    for name, workload in parts.workloads.items():
        for i, guardrail in enumerate(workload.guardrails):
            if guardrail not in named and guardrail != "quality":
                yield (
                    ("workloads", name, "guardrails", i),
                    f"no step judges {guardrail}: name it in the steps of policy, or leave it out here",
                )


def _after(before: StepShape, step: StepShape, here: Path) -> Iterator[Finding]:
    if _PHASES.index(step.phase) < _PHASES.index(before.phase):
        yield (*here, "phase"), f"{step.phase} comes after {before.phase}: the order is {', '.join(_PHASES)}"
    elif step.phase == before.phase and step.phase != "ramp":
        yield (*here, "phase"), f"{step.phase} stands twice: only ramp may"
    if step.weight < before.weight:
        yield (
            (*here, "weight"),
            f"{q.format_share(step.weight)} is below the step before ({q.format_share(before.weight)}): weights must ascend",
        )
    elif step.weight == before.weight and step.phase in {"canary", "ramp", "full"}:
        yield (*here, "weight"), f"{q.format_share(step.weight)} is no more than the step before: weights must ascend"


def _margin(name: str, margin: str, fail_margin: str | None, here: Path) -> Iterator[Finding]:
    values: dict[str, float] = {}
    for key, text in (("margin", margin), ("fail_margin", fail_margin)):
        if text is None:
            continue
        try:
            values[key] = read_margin(name, text)
        except ValueError as e:
            yield (*here, key), str(e)
    if values.get("margin", 1.0) <= 0:
        yield (*here, "margin"), "must be above 0: no evidence can show that two sides are exactly equal"
    most, shown = (MOST_RATIO, f"{MOST_RATIO * 100:g}%") if name in LADDER_METRICS else (MOST_POINTS, f"{MOST_POINTS * 100:g} points")
    if values.get("margin", 0.0) > most:
        yield (*here, "margin"), f"is above {shown}: whatever happens would pass"
    if "margin" in values and values.get("fail_margin", 0.0) > values["margin"]:
        yield (*here, "fail_margin"), "is above the margin: what fails could pass"


def read_margin(name: str, text: str) -> float:
    """Read a margin in its guardrail's unit: times and nll as a percentage, all others as points.

    Raises:
        ValueError: another unit or none.
    """
    return q.parse_ratio(text) if name in LADDER_METRICS else q.parse_points(text)
