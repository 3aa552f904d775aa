"""Assess, use-case layer: read what runs, judge how it can move, keep the verdict and a person's waivers. Never imports an adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from fleetctl.assess.declared import declared
from fleetctl.assess.gather import Gatherer
from fleetctl.assess.route import RANK, decide
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Assessment, Finding, Route, Waiver
from fleetctl.domain.pool import Pool
from fleetctl.domain.portability import ROUTES, LicenceAcceptance, RuleBook, Skipped, TextFile
from fleetctl.domain.units import Money
from fleetctl.domain.workload import Workload
from fleetctl.errors import AssessFailed
from fleetctl.ports.portability import Probe, SourceTree
from fleetctl.ports.state import Clock, Records, Store

Price = Callable[[Workload, Pool], Money | None]
MOST_PROBED = 200
"""Files that are compiled on trial per assessment: about one CPU second each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessPorts:
    """All that assessing touches; `store` None where nothing is kept."""

    tree: SourceTree
    book: RuleBook
    clock: Clock
    actor: Actor
    records: Records | None = None
    store: Store | None = None
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be assessed: paths, image names, and the workload they belong to."""

    paths: tuple[Path, ...] = ()
    images: tuple[str, ...] = ()
    workload: Workload | None = None
    target: str = "gfx942"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One workload's verdict with what it costs; `usd_per_hour` None where no price is known."""

    workload: str
    route: Route
    kind: str
    blocking: int
    usd_per_hour: Decimal | None
    as_of: str
    stale: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTotal:
    """How many workloads take one route, and what they cost."""

    route: Route
    workloads: int
    usd_per_hour: Decimal
    unpriced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerdict:
    """The whole fleet: rows, the most expensive first, and totals per route in the order of routes."""

    fleet: str
    rows: tuple[FleetRow, ...]
    totals: tuple[RouteTotal, ...]


def kept_id(workload: str) -> str:
    """Return the id under which a workload's newest found assessment is kept."""
    return f"found-{workload}"


def assess(subject: Subject, ports: AssessPorts, *, waivers: tuple[Waiver, ...] = ()) -> Assessment:
    """Read and judge.

    Args:
        waivers: new ones; those kept with the workload's last assessment stay in force.

    Raises:
        AssessFailed: assess.nothing_read, assess.unknown_image: a path or an image's name holds nothing that a verdict could rest on.
    """
    now = ports.clock.now()
    gatherer = Gatherer(ports.book, subject.target)
    for path in subject.paths:
        _read(path, subject, gatherer, ports)
    workload = subject.workload
    for image in subject.images:
        if gatherer.add_image_name(image, image):
            continue
        if not subject.paths and workload is None:
            hint = "Name a path that is there, or what docker save wrote"
            raise AssessFailed("assess.unknown_image", f"no rule knows an image named {image}, and its name is all there is.", hint=hint)
        gatherer.add(Skipped(path=image, reason="an image of which only the name is known", hides=True))
    findings: tuple[Finding, ...]
    if workload is not None:
        gatherer.add_workload(workload)
    findings = gatherer.findings(now)
    kept = _kept(subject, ports)
    if kept is not None:
        known = {(f.rule, f.subject) for f in kept.findings}
        findings = (*kept.findings, *(f for f in findings if (f.rule, f.subject) not in known))
    elif workload is not None and not subject.paths and not subject.images:
        findings = (*findings, *_declared(workload, ports))
    of_workload = f"workload {workload.id}" if workload else ""
    return decide(
        workload.id if workload is not None else WorkloadId(""),
        findings,
        kept.as_of if kept is not None else now,
        waivers=(*_kept_waivers(workload, waivers, ports), *waivers),
        licence=licence_of("scale", ports),
        target=subject.target,
        subject=kept.subject if kept else " ".join([*(str(p) for p in subject.paths), *subject.images]) or of_workload,
        lines=kept.lines if kept else gatherer.counts.lines,
        files=kept.files if kept else gatherer.counts.files,
    )


def _kept(subject: Subject, ports: AssessPorts) -> Assessment | None:
    """Return what was read for a workload before, where only its name is given: the fleet file alone must not judge more kindly.

    Raises:
        AssessFailed: assess.other_target: it was read for another target.
    """
    workload = subject.workload
    if workload is None or subject.paths or subject.images or ports.records is None:
        return None
    last = ports.records.get(Assessment, kept_id(workload.id))
    if last is None or last.kind != "found" or last.subject in {"", f"workload {workload.id}"}:
        return None
    if last.target != subject.target:
        raise AssessFailed(
            "assess.other_target",
            f"workload {workload.id} was read for {last.target}, from {last.subject}; for {subject.target} it was not.",
            hint=f"Run: fleetctl assess PATH --target {subject.target} --save {workload.id}",
        )
    return last


def _read(path: Path, subject: Subject, gatherer: Gatherer, ports: AssessPorts) -> None:
    probes = tuple(p for p in ports.probes if not p.missing())
    probed = 0
    root = path if path.is_dir() else path.parent
    skipped: Skipped | None = None
    before = gatherer.counts.files
    for read in ports.tree.read(path):
        gatherer.add(read)
        if isinstance(read, Skipped):
            skipped = skipped or read
        if not isinstance(read, TextFile) or read.installed or "!" in read.path:
            continue
        for probe in probes:
            if probed < MOST_PROBED and probe.wants(read.path, read.text):
                probed += 1
                gatherer.add_probe(probe.probe(root, read.path, read.text, subject.target))
    if gatherer.counts.files == before:
        why = f"{skipped.path}: {skipped.reason}" if skipped else "no source, requirements, container, model or binary file"
        hint = "Name a source tree, a model folder, an image or an archive"
        raise AssessFailed("assess.nothing_read", f"nothing in {path} could be judged: {why}.", hint=hint)


def _declared(workload: Workload, ports: AssessPorts) -> Iterator[Finding]:
    """Yield the owner's word where nothing of the workload was read: a verdict from its settings alone must not be kinder."""
    word = declared(workload, ports.clock.now())
    if word.route in RANK and word.route not in {"native", "zluda"}:
        text = f"its owner declares the route {word.route}; no source was read that says otherwise"
        yield Finding(
            rule="route.declared",
            severity="warning",
            text=text,
            where=f"workload {workload.id}",
            grade="rework",
            least=word.route,
            evidence="the fleet file",
            as_of=f"{word.as_of:%Y-%m-%d}",
        )
    yield from word.blocking


def _kept_waivers(workload: Workload | None, new: tuple[Waiver, ...], ports: AssessPorts) -> Iterator[Waiver]:
    if workload is None or ports.records is None:
        return
    last = ports.records.get(Assessment, kept_id(workload.id))
    named = {w.rule for w in new}
    yield from (w for w in (last.waived if last is not None else ()) if w.rule not in named)


def licence_of(name: str, ports: AssessPorts) -> LicenceAcceptance | None:
    """Return the acceptance of a licence that is on record."""
    return None if ports.records is None else ports.records.get(LicenceAcceptance, f"licence-{name}")


def accept_licence(name: str, reference: str, ports: AssessPorts) -> LicenceAcceptance:
    """Put a person's acceptance of a licence on record."""
    accepted = LicenceAcceptance(licence=name, reference=reference, actor=ports.actor, at=ports.clock.now())
    if ports.records is not None and ports.store is not None:
        ports.records.put(f"licence-{name}", accepted)
        event = Event(at=accepted.at, kind="licence.accepted", actor=ports.actor, text=f"licence {name}: {reference}")
        ports.store.append((event,))
    return accepted


def save(assessment: Assessment, ports: AssessPorts) -> None:
    """Keep an assessment as the newest of its workload; the planner takes it from now on."""
    if ports.records is None or ports.store is None:
        return
    ports.records.put(kept_id(assessment.workload), assessment)
    text = f"assessment of {assessment.workload}: {assessment.route}, {len(assessment.blocking)} blocking, {len(assessment.waived)} waived"
    data = {"route": assessment.route, "blocking": len(assessment.blocking), "waived": ", ".join(w.rule for w in assessment.waived)}
    ports.store.append((Event(at=ports.clock.now(), kind="assess.saved", actor=ports.actor, text=text, data=data),))


def current(workload: Workload, records: Records, clock: Clock) -> Assessment:
    """Return a workload's newest found assessment, else what its owner declares."""
    found = records.get(Assessment, kept_id(workload.id))
    if found is not None and found.kind == "found":
        return found
    licence = records.get(LicenceAcceptance, "licence-scale") if workload.route == "scale" else None
    return declared(workload, clock.now(), licence)


def assess_fleet(fleet: Fleet, records: Records, clock: Clock, price: Price) -> FleetVerdict:
    """Return how many workloads take each route, and how much money that is."""
    rows: list[FleetRow] = []
    for workload in fleet.workloads:
        found = current(workload, records, clock)
        costs = [price(workload, fleet.pool(c.source)) for c in fleet.cells if c.workload == workload.id]
        known = [c.amount for c in costs if c is not None]
        rows.append(
            FleetRow(
                workload=workload.id,
                route=found.route,
                kind=found.kind,
                blocking=len(found.blocking),
                usd_per_hour=sum(known, Decimal(0)) if known else None,
                as_of=f"{found.as_of:%Y-%m-%d}",
                stale=sum(f.is_stale for f in found.findings),
            )
        )
    rows.sort(key=lambda r: (r.usd_per_hour is None, -(r.usd_per_hour or Decimal(0)), r.workload))
    return FleetVerdict(
        fleet=fleet.name, rows=tuple(rows), totals=tuple(_total(r, rows) for r in ROUTES if any(x.route == r for x in rows))
    )


def _total(route: Route, rows: list[FleetRow]) -> RouteTotal:
    mine = [r for r in rows if r.route == route]
    money = sum((r.usd_per_hour for r in mine if r.usd_per_hour is not None), Decimal(0))
    return RouteTotal(route=route, workloads=len(mine), usd_per_hour=money, unpriced=sum(r.usd_per_hour is None for r in mine))
