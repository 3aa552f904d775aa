"""A made-up migration for the report: one cell that completes and falls back, one that fails, a stream, a shadowed LLM. Deterministic."""

from __future__ import annotations

from datetime import timedelta
from math import exp, sin

from fleetctl.domain.event import GENESIS, Event, chained
from fleetctl.domain.evidence import Counts, Look, LookRow, Verdict, VerdictKind
from fleetctl.domain.ids import CellId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.report import ChainHead, ClientCount, ReportData
from fleetctl.domain.workload import Guardrail
from tests.cases.planning_fleet import NOW, lab_fleet, plan_of

JUDGE = Actor(kind="judge", name="judge", via="timer")
ANA = Actor(kind="person", name="ana")
STEPS = (("preflight", 0, 3), ("canary", 1000, 32), ("ramp", 5000, 26), ("full", 9500, 9), ("soak", 9500, 20), ("complete", 10_000, 2))


def counts(n: float, errors: int, base_ms: float) -> Counts:
    """Counts of one arm with a lognormal-looking ladder."""
    ladder = tuple(base_ms * exp(0.25 * z) for z in (0.0, 0.674, 1.282, 1.645, 2.326))
    return Counts(attempts=int(n), errors=errors, timed=int(n) - errors, quantiles_ms=ladder)


def verdict(name: str, kind: VerdictKind, e_value: float, pass_e: float, second: float) -> Verdict:
    """A verdict at one second."""
    look = Look(at=NOW + timedelta(seconds=second), baseline_n=900, canary_n=100, baseline_events=1, canary_events=1, share=0.1)
    return Verdict(kind=kind, guardrail=Guardrail(name), e_value=e_value, pass_e_value=pass_e, look=look)


def good_looks(cell: str, begin: float, *, slower: float = 1.0, stop_after: str = "", has_latency: bool = True) -> tuple[LookRow, ...]:
    """A cell that walks through all steps; `slower` bends the target's latency, `stop_after` ends it there with a FAIL."""
    rows: list[LookRow] = []
    at = begin
    for phase, weight, length in STEPS:
        for second in range(length):
            share = weight / 10_000
            wave = 1 + 0.04 * sin((at + second) / 3)
            n = 150.0 * (second + 0.5)
            fail = exp((slower - 1) * 0.6 * second) * (0.7 + 0.2 * wave) if weight else 0.5
            favour = exp(0.13 * second) * (0.1 if slower > 1.1 else 0.9)
            arms = {"baseline": counts(n * (1 - share), 1, 52 * wave), "canary": counts(n * share, second // 9, 51 * slower * (2 - wave))}
            if not has_latency:
                arms = {arm: Counts(attempts=c.attempts, errors=c.errors) for arm, c in arms.items()}
            sizes = (("all", 1.0), ("errors", 0.6), *((("latency", 1.5),) if has_latency else ()))
            kind: VerdictKind = "FAIL" if fail >= 100 else "PASS" if favour >= 20 else "INCONCLUSIVE"
            judged = tuple(
                verdict(g, kind, favour if kind == "PASS" else fail * size, favour * size, at + second) for g, size in sizes if weight
            )
            rows.append(
                LookRow(
                    cell=CellId(cell),
                    at=NOW + timedelta(seconds=at + second),
                    phase=phase,
                    target_bp=weight,
                    served_bp=int(weight * (1 + 0.03 * sin(second))) if weight else None,
                    arms=arms if weight else {},  # type: ignore[arg-type]
                    verdicts=judged,
                    why="FAIL on latency" if kind == "FAIL" else "collecting evidence",
                )
            )
            if kind == "FAIL" or (phase == stop_after and second == length - 1):
                return (*rows, _home(cell, at + second + 1, phase))
        at += length
    return tuple(rows)


def _home(cell: str, at: float, phase: str) -> LookRow:
    return LookRow(
        cell=CellId(cell),
        at=NOW + timedelta(seconds=at),
        phase=phase,
        target_bp=0,
        served_bp=0,
        arms={},
        verdicts=(),
        why="home on the source",
    )


def event(second: float, kind: str, text: str, cell: str | None = None, actor: Actor = JUDGE) -> Event:
    """An event that is not chained yet."""
    return Event(at=NOW + timedelta(seconds=second), kind=kind, actor=actor, text=text, cell=CellId(cell) if cell else None)


def told_events() -> tuple[Event, ...]:
    """What happened, chained per cell."""
    raw = (
        event(-20, "plan.made", "plan of serial 1", actor=ANA),
        event(-15, "plan.approved", "approved; the policy asks for no second person", actor=ANA),
        event(0, "rollout.start", "attempt 1", "chat-lab", ANA),
        event(3, "rollout.step", "both pools answer real completions", "chat-lab"),
        event(35, "rollout.step", "PASS on 470 canary requests", "chat-lab"),
        event(61, "rollout.step", "PASS on 1,930 canary requests", "chat-lab"),
        event(70, "rollout.step", "bake time is over, no FAIL", "chat-lab"),
        event(92, "rollout.complete", "soak is over", "chat-lab"),
        event(94, "rollout.start", "attempt 1", "summary-lab", ANA),
        event(106, "verdict.fail", "latency: x2.0 at p50, e-value 121", "summary-lab"),
        event(107, "rollout.rolled_back", "FAIL on latency; 0 % in 6 ms", "summary-lab"),
        event(120, "order.fallback", "fallback --all", "chat-lab", ANA),
        event(121, "rollout.fell_back", "home by order of ana, 4 ms to zero", "chat-lab", ANA),
    )
    heads: dict[CellId | None, tuple[int, Sha256]] = {}
    out = []
    for e in raw:
        seq, prev = heads.get(e.cell, (0, GENESIS))
        link = chained(e, seq + 1, prev)
        heads[e.cell] = (link.seq, link.hash)
        out.append(link)
    return tuple(out)


def told() -> ReportData:
    """The whole report of the made-up migration."""
    fleet = lab_fleet()
    events = told_events()
    chat = (*good_looks("chat-lab", 0), _home("chat-lab", 121, "complete"))
    looks = {
        CellId("chat-lab"): chat,
        CellId("smollm-lab"): good_looks("smollm-lab", 4, stop_after="ramp"),
        CellId("summary-lab"): good_looks("summary-lab", 94, slower=2.0),
        CellId("stream-lab"): good_looks("stream-lab", 94, has_latency=False),
    }
    cells = sorted({e.cell for e in events}, key=str)
    chains = tuple(
        ChainHead(cell=c, events=sum(e.cell == c for e in events), head=next(e.hash for e in reversed(events) if e.cell == c))
        for c in cells
    )
    lab = (
        ("haproxy", "real", "HAProxy 2.8.25, one process, splits by bucket"),
        ("smollm-b1, smollm-c1", "real", "SmolLM2-135M served by llama.cpp; f16 and q8_0 KV cache"),
        ("chat-b1, chat-c1", "emulated", "emulated engine: 20 ms to the first token, 2 ms a token"),
        ("nvidia-lab, mi300x-lab", "emulated", "host folders; no GPU, no VM"),
    )
    return ReportData(
        made_at=NOW + timedelta(seconds=180),
        fleet=fleet,
        plan=plan_of(fleet),
        looks=looks,
        events=events,
        chains=chains,
        lab=lab,
        clients=ClientCount(requests=38_412, errors=3),
    )
