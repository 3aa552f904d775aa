"""Inventory, formats layer: from the checked shape of a fleet file to the domain's Fleet. Never sees a file and never finds a mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from fleetctl.domain.fleet import Connection, Fleet, FreezeWindow, NetworkPath, PhaseSpec, Policy, SecretRef
from fleetctl.domain.ids import CellId, HostId, PoolId, WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.pool import Commitment, Host, Pool, Scope
from fleetctl.domain.workload import (
    AffinityKey,
    Breakage,
    Cell,
    Cohort,
    Existing,
    Guardrail,
    GuardrailSpec,
    Lane,
    Model,
    RouterRef,
    ShadowSpec,
    Slo,
    Traffic,
    Workload,
)
from fleetctl.formats.both_arms import to_checks
from fleetctl.formats.fleet_checks import EXISTING, existing_targets, read_margin
from fleetctl.formats.fleet_schema import (
    CellShape,
    CohortShape,
    CommitmentShape,
    EvidenceShape,
    FleetShape,
    MarginShape,
    PolicyShape,
    PoolShape,
    RouterShape,
    SourceShape,
    StepShape,
    WorkloadShape,
)
from fleetctl.formats.presets import DEFAULT_PRESET, PRESETS, default_fail_margin, default_guardrail, holds_back, preflight


def to_fleet(shape: FleetShape, serial: int) -> Fleet:
    """Return the fleet that a checked file declares; `serial` is its number in the store."""
    named = {name for w in shape.workloads.values() for name in w.guardrails} | {"errors", "latency"}
    usual = ("errors", "latency", "slo_misses", "quality")
    guardrails = tuple(Guardrail(name) for name in (*(n for n in usual if n in named), *sorted(named - set(usual))))
    cohorts = _cohorts(shape)
    return Fleet(
        name=shape.name,
        lineage=shape.lineage,
        serial=serial,
        pools=tuple(_pool(name, pool) for name, pool in shape.pools.items()),
        workloads=tuple(_workload(name, workload, shape, cohorts) for name, workload in shape.workloads.items()),
        cells=tuple(_cell(name, cell, shape) for name, cell in shape.cells.items()),
        policy=to_policy(shape.policy, guardrails),
        routers=tuple(_router(name, router) for name, router in shape.routers.items()),
        sources=tuple(_router(name, source) for name, source in shape.sources.items()),
        evidence=tuple(_router(name, source) for name, source in shape.evidence.items()),
        hosts=tuple(host for name, pool in shape.pools.items() for host in _hosts(name, pool)),
        commitments=tuple(_commitment(c) for c in shape.commitments),
        settings=dict(shape.settings),
        paths=tuple(
            NetworkPath(
                one=p.between[0],
                other=p.between[1],
                round_trip_ms=p.round_trip.total_seconds() * 1000,
                is_private=p.private,
                egress_usd_per_gb=p.egress_usd_per_gb,
            )
            for p in shape.paths
        ),
    )


def _ms(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds() * 1000


def _commitment(c: CommitmentShape) -> Commitment:
    scope = None
    if c.scope is not None:
        pools = tuple(PoolId(p) for p in c.scope.pools)
        scope = Scope(clouds=tuple(c.scope.clouds), regions=tuple(c.scope.regions), skus=tuple(c.scope.skus), pools=pools)
    paid = c.spend or c.hourly
    if paid is None:
        raise ValueError("a commitment without hourly and spend passed the checks")
    return Commitment(
        pool=PoolId(c.pool or ""),
        count=c.count or 0,
        hourly=paid,
        until=c.until,
        scope=scope,
        of=c.of or "",
        discount=None if c.spend is None else float(c.discount or 0.0),
        name=c.name,
    )


def _pool(name: str, p: PoolShape) -> Pool:
    return Pool(
        id=PoolId(name),
        vendor=p.vendor,
        sku=p.sku,
        region=p.region,
        count=p.count,
        limit=p.limit,
        priority=p.priority,
        provisioned_by=p.provisioned_by,
        price_usd_per_hour=p.price_usd_per_hour,
        ends=p.ends or "",
    )


def _hosts(pool: str, p: PoolShape) -> tuple[Host, ...]:
    return tuple(
        Host(
            id=HostId(name),
            pool=PoolId(pool),
            address=h.address,
            connection=h.connection,
            user=h.user or "",
            variables=tuple(sorted(h.variables.items())),
        )
        for name, h in p.hosts.items()
    )


def _router(name: str, r: RouterShape | SourceShape | EvidenceShape) -> Connection:
    secrets = {key: SecretRef(kind=s.kind, name=s.name) for key, s in r.secrets.items()}
    return Connection(name=name, kind=r.kind, settings=dict(r.settings), secrets=secrets)


def _cohort(c: CohortShape) -> Cohort:
    return Cohort(of=CellId(c.of), header=(c.header or "").lower(), cookie=c.cookie or "", values=tuple(c.values))


def _cohorts(shape: FleetShape) -> dict[str, list[str]]:
    """Return the workloads of the cohorts of each workload's cells."""
    found: dict[str, list[str]] = {}
    for c in shape.cells.values():
        if c.cohort is not None:
            found.setdefault(shape.cells[c.cohort.of].workload, []).append(c.workload)
    return found


def _workload(name: str, w: WorkloadShape, shape: FleetShape, cohorts: Mapping[str, Sequence[str]]) -> Workload:
    s = w.shadow
    return Workload(
        id=WorkloadId(name),
        model=Model(
            name=w.model.name,
            parameters_billion=w.model.parameters_billion,
            precision=w.model.precision,
            context_tokens=w.model.context_tokens,
            layers=w.model.layers,
            kv_heads=w.model.kv_heads,
            head_dim=w.model.head_dim,
        ),
        engine=w.engine,
        engine_version=w.engine_version,
        klass=w.class_,
        slo=Slo(latency_ms=_ms(w.slo.latency), error_ratio=w.slo.error_ratio, ttft_ms=_ms(w.slo.ttft), tpot_ms=_ms(w.slo.tpot)),
        traffic=Traffic(
            requests_per_s=w.traffic.requests_per_s,
            trough_per_s=w.traffic.trough_per_s,
            input_tokens=w.traffic.input_tokens,
            output_tokens=w.traffic.output_tokens,
            streaming=w.traffic.streaming,
        ),
        replicas=w.replicas,
        accelerators_per_replica=w.accelerators_per_replica,
        concurrency=w.concurrency,
        adapters=tuple(w.adapters),
        guardrails=tuple(Guardrail(g) for g in w.guardrails),
        shadow=None
        if s is None
        else ShadowSpec(
            positions=s.positions,
            max_mismatch_ratio=s.max_mismatch,
            near_tie_nat=s.near_tie_nat,
            sample_per_s=s.sample_per_s,
            max_share=s.max_share,
        ),
        owner=w.owner,
        cost_centre=w.cost_centre,
        tenant=w.tenant,
        data_class=w.data_class,
        route=w.route,
        serving=dict(w.serving),
        apart=w.apart,
        after=tuple(WorkloadId(other) for other in dict.fromkeys((*w.after, *cohorts.get(name, ())))),
        may_differ=tuple(w.may_differ),
        checks=to_checks(w.checks, shape.policy.checks),
        drill=None if w.drill is None else Breakage(inject=tuple(w.drill.inject), mend=tuple(w.drill.mend)),
    )


def _cell(name: str, c: CellShape, shape: FleetShape) -> Cell:
    router = c.router.name
    if router == EXISTING and router not in shape.routers:
        router = next(iter(shape.routers))
    signer = Actor(kind="person", name=c.lane.actor, via="cli") if c.lane.actor else None
    lane = Lane(kind=c.lane.kind, reason=c.lane.reason, actor=signer, bake=c.lane.bake)
    return Cell(
        id=CellId(name),
        workload=WorkloadId(c.workload),
        region=c.region,
        source=PoolId(c.source),
        router=RouterRef(
            name=router,
            baseline_backend=c.router.baseline_backend,
            canary_backend=c.router.canary_backend,
            baseline_endpoints=tuple(c.router.baseline_endpoints),
            canary_endpoints=tuple(c.router.canary_endpoints),
        ),
        target=_target(c, shape),
        on_source_loss=c.on_source_loss,
        affinity=AffinityKey(kind=c.affinity.kind, name=c.affinity.name) if c.affinity else None,
        lane=lane,
        wave=c.wave,
        evidence=tuple(c.evidence),
        cohort=_cohort(c.cohort) if c.cohort else None,
        regions=tuple(c.regions),
    )


def _target(c: CellShape, shape: FleetShape) -> Existing | PoolId | None:
    if c.target is None:
        return None
    if c.target.existing is not None:
        return Existing(pool=PoolId(c.target.existing))
    if c.target.pool == EXISTING and EXISTING not in shape.pools:
        return Existing(pool=PoolId(existing_targets(c, shape.pools)[0]))
    return PoolId(c.target.pool or "")


def to_policy(p: PolicyShape, guardrails: tuple[Guardrail, ...]) -> Policy:
    """Return the policy with a preflight step in front and default margins where the file names none."""
    shapes = p.steps if p.steps is not None else [StepShape.model_validate(dict(s)) for s in PRESETS[DEFAULT_PRESET]]
    steps = tuple(_step(step, guardrails) for step in shapes)
    if not steps or steps[0].phase != "preflight":
        steps = (preflight(), *steps)
    return Policy(
        steps=steps,
        approvals=p.approvals,
        wave_cells=p.wave_cells,
        cap_bp=p.cap,
        warm_up=p.warm_up,
        lost_evidence_home=p.lost_evidence_home,
        step_deadline=p.step_deadline,
        weight_lease=p.weight_lease,
        freeze=tuple(FreezeWindow(name=f.name, start=f.start, end=f.end) for f in p.freeze),
        order=tuple(p.order),
        power_kw=dict(p.power_kw),
        target_gpus=p.target_gpus,
        budget_usd_per_hour=p.budget_usd_per_hour,
        horizon=p.horizon,
        target_share=p.target_share,
        cooling=dict(p.cooling),
        require_signatures=p.require_signatures,
        home_within=p.home_within,
    )


def _step(step: StepShape, guardrails: tuple[Guardrail, ...]) -> PhaseSpec:
    specs: tuple[GuardrailSpec, ...] = ()
    if step.guardrails is not None:
        specs = tuple(_guardrail(Guardrail(name), m, step.phase) for name, m in step.guardrails.items())
    elif step.phase in {"canary", "ramp", "full", "soak"}:
        specs = tuple(default_guardrail(g, step.weight, holds_back=holds_back(step.phase)) for g in guardrails)
    return PhaseSpec(phase=step.phase, weight_bp=step.weight, bake=step.bake, guardrails=specs)


def _guardrail(name: Guardrail, m: MarginShape, phase: str) -> GuardrailSpec:
    margin = read_margin(name, m.margin)
    fail = (
        read_margin(name, m.fail_margin) if m.fail_margin is not None else default_fail_margin(name, margin, holds_back=holds_back(phase))
    )
    return GuardrailSpec(name=name, margin=margin, fail_margin=fail, judged=m.judged)
