"""Assess and plan, domain layer: what can move, what will, in which order, at what cost. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.calendar import Calendar, CashLine, PathUse
from fleetctl.domain.canonical import LATER
from fleetctl.domain.fleet import Phase, PhaseSpec
from fleetctl.domain.ids import CellId, PlanId, PoolId, Sha256, WorkloadId
from fleetctl.domain.people import Actor, Reason
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.units import Instant, Money
from fleetctl.domain.workload import Guardrail, LaneKind, Requests

Route = Literal["native", "rebuild", "hipify", "scale", "zluda", "stay"]
Grade = Literal["blocker", "rework", "risk", "perf", "info"]
"""What a finding costs: no way round it, work, danger of wrong answers, speed, nothing."""
PLAN_FORMAT = 1
ARRIVED = "move.arrived"
"""Reason of a cell that an earlier plan brought to its target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that stands in the way of a move, with its evidence.

    Args:
        where: the first place, as `path:line`; places: a few more; count: of all.
        subject: what it is about (a name, a package), "" where the rule says it all.
        grade: what it costs; least: the first route that copes with it, "" where it says nothing about routes.
        evidence: where the rule comes from; as_of: when it was last checked, ISO date; is_stale: that was over 180 days ago.
        is_guarded: its owners have a branch for AMD around it.
    """

    rule: str
    severity: Literal["info", "warning", "blocking"]
    text: str
    where: str = ""
    subject: str = ""
    grade: Grade = "info"
    least: Route | Literal[""] = ""
    evidence: str = ""
    as_of: str = ""
    is_stale: bool = False
    is_guarded: bool = False
    count: int = 1
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiver:
    """A person's decision to accept a finding, with a reason that is kept.

    Args:
        rule: an id such as "R038", or "R036:cudaFoo" for one subject of it.
    """

    rule: str
    reason: str
    actor: Actor
    at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteVerdict:
    """Why one route is open or not; `blocked_by` names findings as "rule" or "rule:subject"."""

    route: Route
    is_open: bool
    reason: str
    blocked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Whether and how a workload can run on the other platform.

    Args:
        blocking: what must be mended, replaced or waived before it may move; findings: all, the blocking ones included.
        routes: every route in the order they were tried; subject: what was read; target: accelerator architecture.
        lines: source lines read; licence: the acceptance that the route rests on, "" where it needs none.
    """

    workload: WorkloadId
    route: Route
    as_of: Instant
    blocking: tuple[Finding, ...] = ()
    waived: tuple[Waiver, ...] = ()
    kind: Literal["declared", "found"] = "declared"
    findings: tuple[Finding, ...] = ()
    routes: tuple[RouteVerdict, ...] = ()
    subject: str = ""
    target: str = "gfx942"
    lines: int = 0
    files: int = 0
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Memory that a replica needs against what its accelerators have, in GiB; `estimated` names what was assumed."""

    needed_gib: float
    available_gib: float
    estimated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What one accelerator of the target does against one of the source, for one SLO class.

    Args:
        factor: throughput at the same SLO, above 0.
        kind: measured (this model), derived (another model's ratio), bound (no record: never counted above 1), emulated (a lab's).
        source: the records it comes from.
    """

    factor: float
    kind: Literal["measured", "derived", "bound", "emulated", "declared"]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPrice:
    """One pool's multipliers in the certificate, USD per hour and GPU: of cells that keep it, of all its cells, of those that enter.

    Args:
        cover: USD per hour and VM: of VMs that commitments by scope may pay for.
    """

    pool: PoolId
    stay: float
    both: float
    peak: float
    cover: float = field(default=0.0, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What proves how near the plan is to the cheapest one; `fleetctl.planning.checker` checks it without the solver.

    Args:
        cost: USD/h of all priced pools then, plus the moves' own cost spread over `horizon_hours`; bound: no plan costs less.
        prices: from which anybody can compute `price_bound` again; caps: multiplier per shared limit, by its name.
        proof: "prices", or "branch and bound" where the solver's tree proves more than prices can.
        covered: USD/h of those VMs that commitments by scope pay for, already taken off `cost`; None where there are none.
        later: the same for each stage that waits for a release, on what the stages before it leave (their moves' cost included).
        apart: USD/h of the gap that comes from keeping groups apart, which the bound leaves out; None where it does not, or nothing does.
    """

    cost: Money
    bound: Money
    price_bound: Money
    gap_pct: float
    proof: Literal["prices", "branch and bound"]
    horizon_hours: float
    moving: Money
    prices: tuple[PoolPrice, ...] = ()
    caps: tuple[tuple[str, float], ...] = ()
    later: tuple[Certificate, ...] = field(default=(), metadata=LATER)
    covered: Money | None = field(default=None, metadata=LATER)
    apart: Money | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOption:
    """One way in which a cell could get a verdict.

    Args:
        hours: from the first step to the start of soak, by this lane; None where it never ends or there is no such way.
        text: what it rests on, or what it would ask for.
    """

    kind: LaneKind
    fits: bool
    hours: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePlan:
    """By which lane a cell gets its verdicts, and what evidence that rests on.

    Args:
        kind: the lane it moves by; "stay" where none fits that nobody must sign.
        fits: the first lane that would fit, of own, pooled, replay, accepted, stay.
        binding: the guardrail and step that take longest, such as "latency at 50 %"; "" where no step needs evidence.
        needed: canary requests there (p90 if both arms are equal); arrive: those that its own traffic brings within the limit.
        group: the cells whose evidence counts together, itself among them; () where it stands alone.
        options: every lane with its hours, in the order in which they are tried.
    """

    kind: LaneKind
    fits: LaneKind
    binding: str = ""
    needed: Requests = 0
    arrive: Requests = 0
    group: tuple[CellId, ...] = ()
    options: tuple[LaneOption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the plan does with one cell. Staying is a normal result.

    Args:
        cost_now, cost_then: this cell's share of its VMs by GPUs, USD per hour; None where no price is known.
        hours: planned time from the first step to the start of soak; None where no end can be planned.
        target_replicas: on the target, from `speed`; None where nothing was placed.
        lane: how it gets its verdicts; None where it needs none, since it stays anyway.
        kw_now, kw_then: all-in draw by its GPUs, kW; None where no figure is known.
        fault_to_zero_s: planned, from the moment every request on the target fails to none being sent there, at the slowest step.
    """

    cell: CellId
    workload: WorkloadId
    kind: Literal["move", "stay", "infeasible"]
    source: PoolId
    target: PoolId | None
    replicas: int
    reason: Reason
    change: str | None = None
    fit: Fit | None = None
    cost_now: Money | None = None
    cost_then: Money | None = None
    hours: float | None = None
    target_replicas: int | None = None
    speed: Speed | None = None
    lane: LanePlan | None = field(default=None, metadata=LATER)
    kw_now: float | None = field(default=None, metadata=LATER)
    kw_then: float | None = field(default=None, metadata=LATER)
    fault_to_zero_s: float | None = field(default=None, metadata=LATER)

    @property
    def arrived(self) -> bool:
        """Tell whether an earlier plan brought the cell to this target already: it is in no wave."""
        return self.reason.code == ARRIVED


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailNeed:
    """What one guardrail costs at one step, in canary requests; each pair is (median, p90 of runs).

    Args:
        margin, fail_margin: points / 100 for shares, a ratio for latency.
        error_ratio, log_sd: of the baseline, as they were counted with: of a share its own rate; origin: measured, declared or assumed.
        passes: to a PASS if both arms are equal; half: the same at half the margin; fails: to a FAIL where it is worse by twice the
            margin, None where it was not worked out.
        least_margin: the smallest that a PASS may have by the fleet's own A/A comparison; None before `fleetctl calibrate`.
        replicas: (baseline, canary) that the evidence comes from; rungs: margins of the ladder's rungs where a tail is granted more.
        pairs_per_s: of the probes that measure it, so that the requests are pairs and users' traffic does not matter; None: users' own.
    """

    guardrail: Guardrail
    margin: float
    fail_margin: float
    error_ratio: float
    log_sd: float
    origin: str
    passes: tuple[Requests, Requests]
    half: tuple[Requests, Requests]
    fails: tuple[Requests, Requests] | None = None
    least_margin: float | None = None
    replicas: tuple[int, int] = (0, 0)
    rungs: tuple[float, ...] = ()
    pairs_per_s: float | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNeed:
    """What one step of a wave needs before it can PASS.

    Args:
        requests: canary requests per judged guardrail (p90 if both arms are equal), of the cell that needs most.
        hours: planned time of the slowest cell, its bake time included; trough_hours: at the rate of the quietest hour, None: unknown.
        positions: shadow token positions to compare, 0 where the step has none.
        binding: the guardrail that takes longest, "" where none is judged; guardrails: what each costs, of the cell that needs most.
    """

    phase: Phase
    weight_bp: int
    requests: Mapping[Guardrail, Requests] = field(default_factory=dict)
    hours: float = 0.0
    positions: int = 0
    trough_hours: float | None = field(default=None, metadata=LATER)
    binding: str = field(default="", metadata=LATER)
    guardrails: tuple[GuardrailNeed, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Cells that move together.

    Args:
        evidence_needed: canary requests to PASS if both arms are equal (p90), per guardrail, at the widest step.
        steps: the same per step, in the order of `phases`; hours: of the whole wave, soak included.
        stage: 1, or later: what earlier stages left has to be released first.
    """

    index: int
    cells: tuple[CellId, ...]
    phases: tuple[PhaseSpec, ...]
    evidence_needed: Mapping[Guardrail, Requests] = field(default_factory=dict)
    steps: tuple[StepNeed, ...] = ()
    hours: float = 0.0
    stage: int = field(default=1, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing the plan was checked for."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A saved, hash-bound value that a person reads and approves; applying refuses it once the fleet has moved on.

    Args:
        id: first 12 hex digits of the digest of all else, prefixed "p".
        cost_now, cost_then: USD per hour of all pools; overlap_cost: USD for the time both sides run;
            overlap_extra: the part of it that comes on top of today's bill.
        bound, gap_pct, checks: the certificate, filled by the optimiser.
        cash: the bill by list, contract and after commitments; calendar: when, None where nothing moves.
        paths: ways between regions that moving cells use.
    """

    id: PlanId
    lineage: str
    serial: int
    fleet: Sha256
    made_at: Instant
    outcomes: tuple[Outcome, ...]
    pools: tuple[PoolSpec, ...]
    waves: tuple[Wave, ...]
    cost_now: Money
    cost_then: Money
    overlap_cost: Money
    catalog_id: str
    price_book_id: str
    overlap_extra: Money | None = None
    bound: Money | None = None
    gap_pct: float | None = None
    checks: tuple[Check, ...] = ()
    certificate: Certificate | None = None
    format_version: int = PLAN_FORMAT
    cash: tuple[CashLine, ...] = field(default=(), metadata=LATER)
    calendar: Calendar | None = field(default=None, metadata=LATER)
    paths: tuple[PathUse, ...] = field(default=(), metadata=LATER)

    @property
    def is_stuck(self) -> bool:
        """Tell whether lines of the fleet file cannot all hold and nothing moves: there is nothing to approve."""
        return any(c.name == "conflict" and not c.ok for c in self.checks) and all(o.kind != "move" for o in self.outcomes)

    def stage_of(self) -> dict[CellId, int]:
        """Return the stage of every cell that is in a wave."""
        return {c: w.stage for w in self.waves for c in w.cells}


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's yes to exactly one plan (by the digest of its canonical bytes).

    Args:
        cells: that it lets move; serial: of the fleet; until: when nothing may begin upon it any more, None for no end.
        role: "author" only says who made it; standing: the standing approval that it rests on.
        signature: SSH signature of the canonical encoding of all else, "" where the name is not proven.
    """

    plan: PlanId
    plan_digest: Sha256
    actor: Actor
    at: Instant
    note: str = ""
    cells: tuple[CellId, ...] = field(default=(), metadata=LATER)
    serial: int = field(default=0, metadata=LATER)
    until: Instant | None = field(default=None, metadata=LATER)
    role: Literal["approves", "author"] = field(default="approves", metadata=LATER)
    standing: str = field(default="", metadata=LATER)
    signature: str = field(default="", metadata=LATER)
