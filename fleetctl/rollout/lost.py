"""Migrate, pure layer: whether customers are on the target without evidence. Never I/O, clock, randomness."""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.evidence import Evidence
from fleetctl.domain.rollout import Observation, Rollout
from fleetctl.domain.units import Instant

QUIET_GRACE = timedelta(seconds=10)
"""How long a new step may show no request before that counts as no evidence."""

BROKEN_STATES = frozenset({"nan", "down", "mislabelled", "same_series", "reset"})
QUIET_STATES = frozenset({"empty", "stale"})
BLIND = "the evidence source cannot be read"


def lost_evidence(r: Rollout, seen: Observation, now: Instant) -> str:
    """Say why there is no evidence though customers are on the target; empty where there is, or none is needed."""
    if seen.split.target_bp == 0 or r.settled_at is None or now < r.settled_at:
        return ""
    e = seen.evidence
    if e is None:
        return BLIND
    broken = [f"{arm} is {s}" for arm, s in e.state.items() if s in BROKEN_STATES]
    if broken:
        return ", ".join(broken)
    wrong = next((v for v in seen.verdicts if v.kind == "PROVIDER_ERROR" and v.guardrail == "all"), None)
    if wrong is not None:
        return wrong.detail or "the source of evidence cannot be right"
    if now - r.settled_at > QUIET_GRACE and now_quiet(e):
        return "neither arm shows requests"
    return ""


def now_quiet(e: Evidence) -> bool:
    """Tell whether neither arm has shown a request lately."""
    return all(s in QUIET_STATES for s in e.state.values())
