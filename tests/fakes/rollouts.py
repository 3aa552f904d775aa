"""Small rollouts, orders, events and looks for tests of whatever keeps them."""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import Counts, JudgeState, Look, LookRow, Verdict
from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order, OrderKind, Rollout, RolloutSpec
from fleetctl.domain.workload import Guardrail, GuardrailSpec, Lane
from fleetctl.ports.state import Lease, Store
from tests.fakes.clock import START

ANN = Actor(kind="person", name="ann")
CHAT = CellId("chat-lab")
SUMMARY = CellId("summary-lab")


def rollout(cell: CellId = CHAT, **changes: object) -> Rollout:
    errors = GuardrailSpec(name=Guardrail("errors"), margin=0.02, fail_margin=0.0)
    spec = RolloutSpec(
        source=PoolId("nvidia-lab"),
        target=PoolId("mi300x-lab"),
        phases=(
            PhaseSpec(phase="preflight", weight_bp=0, bake=timedelta(0)),
            PhaseSpec(phase="canary", weight_bp=1000, bake=timedelta(seconds=20), guardrails=(errors,)),
            PhaseSpec(phase="complete", weight_bp=10_000, bake=timedelta(0)),
        ),
        warm_up=timedelta(seconds=3),
        cap_bp=10_000,
        lane=Lane(),
        weight_lease=timedelta(seconds=180),
        lost_evidence_home=timedelta(seconds=120),
        step_deadline=timedelta(hours=1),
    )
    values: dict[str, object] = {
        "cell": cell,
        "plan": PlanId("p1"),
        "spec": spec,
        "judge": JudgeState(format_version=1, numbers=b"\x00" * 2000),
    }
    return Rollout(**{**values, **changes})  # type: ignore[arg-type]


def order(kind: OrderKind, note: str = "", seconds: float = 0) -> Order:
    return Order(kind=kind, actor=ANN, at=START + timedelta(seconds=seconds), note=note)


def event(cell: CellId | None = CHAT, text: str = "hello", kind: str = "rollout.step") -> Event:
    return Event(at=START, kind=kind, actor=ANN, text=text, cell=cell, data={"n": 1})


def look(cell: CellId = CHAT, seconds: float = 0, kind: str = "INCONCLUSIVE") -> LookRow:
    at = START + timedelta(seconds=seconds)
    seen = Look(at=at, baseline_n=900, canary_n=100, baseline_events=3, canary_events=1, share=0.1)
    verdict = Verdict(kind=kind, guardrail=Guardrail("errors"), e_value=0.5, pass_e_value=4.0, missing=120, look=seen)  # type: ignore[arg-type]
    arms = {
        "baseline": Counts(attempts=900, errors=3),
        "canary": Counts(attempts=100, errors=1, ladders={"latency@1.2500": (5, 3, 2, 1, 0)}),
    }
    return LookRow(
        cell=cell,
        at=at,
        phase="canary",
        target_bp=1000,
        served_bp=990,
        arms=arms,  # type: ignore[arg-type]
        verdicts=(verdict,),
        why=f"look at {seconds} s",
    )


def keep_look(store: Store, row: LookRow) -> None:
    """Record a look as a tick does, with nothing else changed; a cell without a rollout gets one."""
    r = store.load(row.cell)
    if r is None:
        r = rollout(row.cell)
        store.start(r, ())
    lease = store.acquire(row.cell, "a@host:1", timedelta(minutes=1))
    assert isinstance(lease, Lease)
    assert store.record(lease, r, r, (), timedelta(0), row) is None
