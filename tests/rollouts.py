"""Values that rollout tests share: a spec as a lab has it, evidence and verdicts by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fleetctl.domain.evidence import Arm, Counts, Cursor, Evidence, JudgeState, Look, SignalState, Thresholds, Verdict, VerdictKind
from fleetctl.domain.fleet import Phase, PhaseSpec
from fleetctl.domain.ids import CellId, PlanId, PoolId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Observation, Order, OrderKind, Rollout, RolloutSpec
from fleetctl.domain.split import Split
from fleetctl.domain.workload import Guardrail, GuardrailSpec, Lane, ShadowSpec

T0 = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CELL = CellId("chat-lab")
PERSON = Actor(kind="person", name="ada")
GUARDRAILS = (
    GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0),
    GuardrailSpec(name=Guardrail("latency"), margin=0.25, fail_margin=0.1),
)
JUDGE_STATE = JudgeState(format_version=1, numbers=b"0")
THRESHOLDS = Thresholds(
    class_edges=(), latency_ms=((50.0, 60.0, 70.0, 80.0, 90.0),), scales=(1.0,), baseline_n=3000, baseline_error_ratio=0.0, log_sd=0.25
)


def spec(*, shadow: bool = False, lane: Lane | None = None, bake_s: float = 10.0) -> RolloutSpec:
    """Return preflight, shadow (if asked), 10 %, 50 %, 95 %, soak, 100 %."""

    def phase(name: Phase, weight_bp: int) -> PhaseSpec:
        return PhaseSpec(phase=name, weight_bp=weight_bp, bake=timedelta(seconds=bake_s if weight_bp else 0), guardrails=GUARDRAILS)

    phases = [phase("preflight", 0), phase("shadow", 0), phase("canary", 1000), phase("ramp", 5000), phase("full", 9500)]
    phases += [phase("soak", 9500), phase("complete", 10_000)]
    return RolloutSpec(
        source=PoolId("nvidia-lab"),
        target=PoolId("mi300x-lab"),
        phases=tuple(p for p in phases if shadow or p.phase != "shadow"),
        warm_up=timedelta(seconds=3),
        cap_bp=10_000,
        lane=lane or Lane(),
        weight_lease=timedelta(seconds=180),
        lost_evidence_home=timedelta(seconds=120),
        step_deadline=timedelta(hours=1),
        shadow=ShadowSpec() if shadow else None,
    )


def rollout(of: RolloutSpec | None = None, *, until: Phase = "complete") -> Rollout:
    """Return a rollout that has just begun."""
    return Rollout(cell=CELL, plan=PlanId("p0123456789a"), spec=of or spec(), judge=JUDGE_STATE, until=until)


def order(kind: OrderKind, at: datetime = T0) -> Order:
    """Return a person's order."""
    return Order(kind=kind, actor=PERSON, at=at)


def cursor(at: datetime) -> Cursor:
    """Return a cursor with thresholds."""
    return Cursor(position="0", since=at, thresholds=THRESHOLDS)


def split(target_bp: int, at: datetime = T0) -> Split:
    """Return what a router shows, with a lease of 180 s from `at`."""
    return Split(cell=CELL, target_bp=target_bp, cap_bp=10_000, token=Token(1), lease_until=at + timedelta(seconds=180))


def evidence(
    at: datetime, *, baseline: int = 900, canary: int = 100, state: SignalState = "ok", baseline_state: SignalState | None = None
) -> Evidence:
    """Return a look with so many attempts per arm."""
    arms: dict[Arm, Counts] = {"baseline": Counts(attempts=baseline), "canary": Counts(attempts=canary)}
    states: dict[Arm, SignalState] = {"baseline": baseline_state or state, "canary": state}
    return Evidence(cell=CELL, at=at, arms=arms, state=states, cursor=cursor(T0), served_bp=1000, baseline_recent=50)


def verdict(kind: VerdictKind, guardrail: str = "errors", at: datetime = T0) -> Verdict:
    """Return one guardrail's verdict."""
    look = Look(at=at, baseline_n=900, canary_n=100, baseline_events=0, canary_events=0, share=0.1)
    return Verdict(kind=kind, guardrail=Guardrail(guardrail), e_value=200.0 if kind == "FAIL" else 0.5, look=look)


def all_pass(at: datetime = T0) -> tuple[Verdict, ...]:
    """Return a PASS of every guardrail."""
    return (verdict("PASS", "errors", at), verdict("PASS", "latency", at))


def seeing(at: datetime, target_bp: int, verdicts: tuple[Verdict, ...] = (), of: Evidence | None = None, **more: object) -> Observation:
    """Return an observation of a healthy fleet."""
    base: dict[str, object] = {"source_ready": 1.0, "target_ready": 1.0, "mark": cursor(at), "judge": JUDGE_STATE}
    return Observation(split=split(target_bp, at), evidence=of, verdicts=verdicts, **(base | more))  # type: ignore[arg-type]
