"""Migrate, pure layer: what each phase demands before the next. Never I/O, clock, randomness."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from fleetctl.domain.evidence import LADDER_METRICS, Verdict
from fleetctl.domain.rollout import Effect, Observation, Rollout, StartShadow, StopShadow
from fleetctl.domain.split import stays_bp
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Guardrail
from fleetctl.rollout.router_faults import share_off

PASS_NEEDED = frozenset({"canary", "ramp"})
"""Phases whose end raises the weight on evidence: every judged guardrail that needs it must PASS.
In full and soak the control is 5 % of the traffic: no FAIL on any guardrail and a PASS on errors are asked there. An incident (the
breaker has tripped and it is not shown whose fault it is) keeps every gate shut, whatever has passed before: evidence latches, customers'
luck does not."""

ANSWERED_LEAST, ANSWERED_WAIT = 40, timedelta(seconds=30)
"""Customers who must have been answered at 100 % before a rollout is complete, and how long they are waited for."""
TOLD_LATE = timedelta(seconds=60)
"""A router that tells later than this who answered is waited for at weight 0 too: else nobody would see that it leaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Whether the step may end, and the sentence a person reads."""

    open: bool
    why: str
    effects: tuple[Effect, ...] = ()


def gate(r: Rollout, seen: Observation, now: Instant) -> Gate:
    """Ask the current phase's gate. `r` is settled and has evidence where it needs any."""
    match r.phase:
        case "preflight":
            return _preflight(r, seen, now)
        case "shadow":
            return _shadow(r, seen)
        case "complete":
            return _complete(r, seen, now)
        case "release":
            return Gate(open=True, why="soak is over")
        case _:
            return _weighted(r, seen, now)


def failure(verdicts: tuple[Verdict, ...]) -> Verdict | None:
    """Return the FAIL that decides, by the name of its guardrail where one is named beside the whole."""
    failed = [v for v in verdicts if v.kind == "FAIL"]
    return next((v for v in failed if v.guardrail != "all"), failed[0] if failed else None)


def promoted(r: Rollout, now: Instant) -> Gate:
    """Take a person's word for evidence; a soak's time it does not shorten, for that is what a release rests on."""
    bake = r.spec.phases[r.step].bake
    left = 0.0 if r.phase != "soak" else bake.total_seconds() if r.settled_at is None else (r.settled_at + bake - now).total_seconds()
    if left > 0:
        return Gate(open=False, why=f"promoted by a person; soak ends by its time alone, {left:.0f} s more")
    return Gate(open=True, why="promoted by a person")


def _complete(r: Rollout, seen: Observation, now: Instant) -> Gate:
    """Wait for customers who show that the router sends all of them to the target, where somebody can count them."""
    if incident := _incident(seen):
        return Gate(open=False, why=incident)
    wait = seen.told_within if seen.told_within > TOLD_LATE else ANSWERED_WAIT
    left = _uncounted_s(r, seen, wait, now)
    if left > 0:
        answered = 0 if seen.served is None else seen.served.baseline + seen.served.canary
        text = f"soak is over; counting who answers at 100 %: {answered} of {ANSWERED_LEAST} customers so far, {left:.0f} s more at most"
        return Gate(open=False, why=text)
    if seen.tells != "itself" and (seen.served is None or not seen.served.canary):
        return Gate(open=False, why="soak is over; nobody is counted on the target at 100 %, so nothing proves that it serves")
    return Gate(open=True, why="soak is over")


def _uncounted_s(r: Rollout, seen: Observation, wait: timedelta, now: Instant) -> float:
    """Return the seconds for which customers are still waited for that show who answers; 0 where enough came, or nobody can count them."""
    served = seen.served
    if served is None or r.settled_at is None or served.baseline + served.canary >= ANSWERED_LEAST:
        return 0.0
    return max(0.0, (r.settled_at + wait - now).total_seconds())


def _preflight(r: Rollout, seen: Observation, now: Instant) -> Gate:
    if seen.wrong_series:
        return Gate(open=False, why=seen.wrong_series)
    if seen.source_ready is not None and seen.source_ready < 1.0:
        return Gate(open=False, why=f"source answers on {seen.source_ready:.0%} of its replicas")
    if seen.source_ready is None or seen.target_ready is None:
        return Gate(open=False, why="asking both pools for real completions")
    if seen.target_ready < 1.0:
        hint = "" if seen.target_ready else " (not made yet? Run: fleetctl provision && fleetctl configure)"
        return Gate(open=False, why=f"target answers on {seen.target_ready:.0%} of its replicas{hint}")
    latency = any(g.name == "latency" and g.judged for p in r.spec.phases for g in p.guardrails)
    if latency and r.spec.lane.kind != "accepted" and (r.since is None or r.since.thresholds is None):
        return Gate(open=False, why="collecting the baseline's latency quantiles")
    probed = any(g.name in LADDER_METRICS[1:] and g.judged for p in r.spec.phases for g in p.guardrails)
    if probed and (r.since is None or r.since.thresholds is None):
        return Gate(open=False, why="collecting the baseline's quantiles of time to first token and per token")
    left = _uncounted_s(r, seen, seen.told_within, now) if seen.told_within > TOLD_LATE else 0.0
    if left > 0:
        return Gate(open=False, why=f"both pools answer; counting who answers customers at weight 0, {left:.0f} s more at most")
    if seen.tells != "itself" and (seen.served is None or not seen.served.baseline):
        why = "cannot be counted" if seen.served is None else "are not counted: none of them on the source"
        return Gate(open=False, why=f"both pools answer; customers {why}, and this router takes weights that others act upon")
    return Gate(open=True, why="both pools answer real completions")


def _shadow(r: Rollout, seen: Observation) -> Gate:
    if r.spec.shadow is None:
        return Gate(open=True, why="no shadow asked for")
    start = StartShadow(sample_per_s=r.spec.shadow.sample_per_s)
    quality = next((v for v in seen.verdicts if v.guardrail == "quality"), None)
    if quality is None:
        return Gate(open=False, why="comparing answers", effects=(start,))
    if quality.kind == "PASS":
        return Gate(open=True, why=quality.detail or "answers agree", effects=(StopShadow(),))
    return Gate(open=False, why=quality.detail or "comparing answers", effects=(start,))


def _weighted(r: Rollout, seen: Observation, now: Instant) -> Gate:
    e = seen.evidence
    if e is None or r.settled_at is None or now < r.settled_at:
        return Gate(open=False, why="warming up")
    step = r.spec.phases[r.step]
    left = (r.settled_at + step.bake - now).total_seconds()
    off = share_off(e.customers, seen.split.target_bp, keeps=seen.keeps)
    if off:
        return Gate(open=False, why=off)
    if incident := _incident(seen):
        return Gate(open=False, why=incident)
    if r.spec.lane.kind == "accepted":
        if e.arms["canary"].attempts == 0:
            return Gate(open=False, why="no canary request yet (lane accepted)")
        if e.state["canary"] != "ok":
            return Gate(open=False, why=f"canary is {e.state['canary']} (lane accepted)")
        return _bake(left, f"lane accepted, no FAIL in {e.arms['canary'].attempts} canary requests")
    waiting = _not_passed(r, seen)
    if waiting:
        return Gate(open=False, why="; ".join(waiting))
    if r.spec.lane.kind != "pooled" and e.arms["canary"].attempts < r.spec.min_canary_requests:
        return Gate(open=False, why=f"{e.arms['canary'].attempts} of {r.spec.min_canary_requests} canary requests")
    return _bake(left, f"PASS on {e.arms['canary'].attempts} canary requests")


def _incident(seen: Observation) -> str:
    """Say that customers get errors now whose cause is not known yet, "" where they do not."""
    v = next((v for v in seen.verdicts if v.guardrail == "breaker" and v.kind == "INCONCLUSIVE"), None)
    if v is not None:
        return f"canary requests are failing ({v.detail})"
    return next((f"{v.guardrail}: {v.detail}" for v in seen.verdicts if v.holds), "")


def _not_passed(r: Rollout, seen: Observation) -> list[str]:
    """Name every judged guardrail of this step that has not passed, and what it misses."""
    by_name = {v.guardrail: v for v in seen.verdicts}
    waiting = []
    whole = by_name.get(Guardrail("all"))
    if whole is not None and whole.kind in ("NO_DATA", "PROVIDER_ERROR"):
        return [whole.detail or whole.kind]
    if whole is not None and whole.kind != "PASS" and r.phase in PASS_NEEDED:
        waiting.append(whole.detail or "the whole has not passed")
    for spec in r.spec.phases[r.step].guardrails:
        if not spec.judged or not spec.needs_pass or (r.phase not in PASS_NEEDED and spec.name != Guardrail("errors")):
            continue
        v = by_name.get(spec.name)
        if v is None or v.kind != "PASS":
            n = f", about {v.missing} canary requests to go" if v is not None and v.missing else ""
            why = f", {v.detail}" if v is not None and v.confounded else ""
            waiting.append(f"{spec.name} {v.kind if v else 'NO_DATA'}{n}{why}")
    return waiting


def _bake(left_s: float, why: str) -> Gate:
    if left_s > 0:
        return Gate(open=False, why=f"{why}; baking {left_s:.0f} s more")
    return Gate(open=True, why=why)


def lowest_bp(seen: Observation) -> int:
    """Return how far the weight may be lowered now: no more go home than ready replicas of the source can take."""
    return stays_bp(seen.split.target_bp, 1.0 if seen.source_ready is None else seen.source_ready)
