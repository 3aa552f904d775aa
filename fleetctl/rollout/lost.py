"""Migrate, pure layer: when a cell that has customers on the target has lost its evidence. Never I/O, clock, randomness.

the source cannot be read, or cannot be right                                   lost
both arms are quiet, and the source is at work: other lines, or our own probe   a lull: nothing is lost, nothing is learned
both arms are quiet, and the source wrote nothing, not even for our own probe   lost
one arm is quiet though many of its requests were due                           lost: it hangs, or the split is not what was set
one arm is quiet and few were due                                               waits

The clock of lost evidence runs from its first look until a look shows requests again, also over a weight that is lowered meanwhile: the
new step's quiet beginning, its warm-up and a router that has not lowered yet prove nothing.
"""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.evidence import ARMS, Arm, Evidence
from fleetctl.domain.rollout import Observation, Rollout
from fleetctl.domain.units import FULL_BP, Instant

QUIET_GRACE = timedelta(seconds=10)
"""How long a new step may show no request before that counts as no evidence."""
DUE = 20.0
"""Requests of a quiet arm that were due, by the other arm's and the weight, from which its silence is no chance: e^-20 for single ones,
and customers' conversations come in clusters."""
AT_WORK = timedelta(seconds=30)
"""A source that wrote anything within this time is at work; an older one is put to the proof by a completion through the router."""
PROOF = timedelta(seconds=5)
"""How long the line of such a completion may take. Source: contract of ports.traffic.Prober (bounded to 5 s)."""
BROKEN_STATES = frozenset({"nan", "down", "mislabelled", "same_series", "reset"})
QUIET_STATES = frozenset({"empty", "stale"})
BLIND = "the evidence source cannot be read"
UNSEEN = "evidence was lost before the weight changed and has not been seen since"


def lost_evidence(r: Rollout, seen: Observation, now: Instant) -> str:
    """Say why there is no evidence though customers are on the target; empty where there is, or none is needed."""
    if seen.split.target_bp == 0 or (r.lost_since is None and not is_looked_for(r, now)):
        return ""
    if r.settled_at is None:
        return UNSEEN
    e = seen.evidence
    if e is None:
        return f"{BLIND} ({seen.blind})" if seen.blind else BLIND
    broken = [f"{arm} is {s}" for arm, s in e.state.items() if s in BROKEN_STATES]
    if broken:
        return ", ".join(broken)
    wrong = next((v for v in seen.verdicts if v.kind == "PROVIDER_ERROR" and v.guardrail == "all"), None)
    if wrong is not None:
        return wrong.detail or "the source of evidence cannot be right"
    shown_at = r.settled_at - (r.spec.warm_up if now < r.settled_at else timedelta(0))
    if now - shown_at > QUIET_GRACE:
        return _silent(r, e, seen.split.target_bp, now)
    return UNSEEN if r.lost_since is not None and any(s in QUIET_STATES for s in e.state.values()) else ""


def is_looked_for(r: Rollout, now: Instant) -> bool:
    """Tell whether a step's evidence is to be there: its weight is shown and its warm-up over, or what was there before was lost."""
    return r.settled_at is not None and (now >= r.settled_at or r.lost_since is not None)


def needs_proof(r: Rollout, e: Evidence | None, now: Instant) -> bool:
    """Tell whether only a completion of our own would show that the source of evidence is at work: nobody else sends any request."""
    if e is None or not now_quiet(e) or e.source_at is None or now - e.source_at <= AT_WORK:
        return False
    return r.proof_at is None or r.proof_at <= e.source_at


def now_quiet(e: Evidence) -> bool:
    """Tell whether neither arm has shown a request lately."""
    return all(s in QUIET_STATES for s in e.state.values())


def _silent(r: Rollout, e: Evidence, weight_bp: int, now: Instant) -> str:
    if now_quiet(e):
        return "" if _is_at_work(r, e, now) else "neither arm shows requests, and nothing shows that their source is at work"
    for arm in ARMS:
        if e.state.get(arm) in QUIET_STATES and (due := _due(e, arm, weight_bp)) >= DUE:
            return f"{arm} is {e.state[arm]} though about {due:,.0f} of its requests were due"
    return ""


def _is_at_work(r: Rollout, e: Evidence, now: Instant) -> bool:
    if e.source_at is None:
        return False
    if now - e.source_at <= AT_WORK or needs_proof(r, e, now):
        return True
    return r.proof_at is not None and now - r.proof_at <= PROOF


def _due(e: Evidence, arm: Arm, weight_bp: int) -> float:
    """Return how many requests the arm should have had since its newest one; replayed ones go to both sides alike."""
    share = weight_bp / FULL_BP if arm == "canary" else 1 - weight_bp / FULL_BP
    each = 1.0 if e.beside is not None else share / max(1 - share, 1 / FULL_BP)
    return e.missed.get(arm, 0) * each
