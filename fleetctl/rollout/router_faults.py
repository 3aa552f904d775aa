"""Migrate, pure layer: a router that takes a weight and does something else. Never I/O, clock, randomness.

Such routers are publicly known: all traffic to one side, weights ignored, a split that answers 503, 100:0 that sends half elsewhere.
What they answer to an order proves nothing, so what customers got is held against the weight that stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import sqrt

from fleetctl.domain.evidence import Evidence
from fleetctl.domain.rollout import Ended, Observation, Rollout
from fleetctl.domain.units import FULL_BP, Instant

SHARE_LEAST = 400
"""Attempts from which the served share is held against the weight."""
LEAKED_LEAST = 20
"""Customers' requests that one side may get by a late word of the router, before they count as sent there."""
NEWEST = 50
"""Newest requests of each arm that tell whether a side fails now."""
FAILING = 0.5
FAR, NEAR = 0.25, 0.09
"""A served share this far above the weight (and three times it) is no heavy conversation: such a router is left. Above the cap by so much
it is left at once: 4 points and 5 standard errors of 400 requests at one half are 16 points, at a tenth 11, at 1 % 6."""
BOTH_FAIL, ALL_FAIL, MANY = "router.both_fail", "router.all_fail", 3
"""Cells that fail on both sides at a time from which something that they share is at fault, as for lost evidence."""
LOOKED_FOR = timedelta(seconds=6)
"""How long a cell whose customers get errors on both sides waits for others to show the same; a tick comes every second."""
ROUTER = "router"
"""Begins `home_for` where a router's fault sent a cell home."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterFault:
    """What a router does wrong.

    Args:
        code: of the hold; goes_home: whether customers are taken off the target at once; pages: whether a hold pages.
    """

    code: str
    text: str
    goes_home: bool = False
    pages: bool = True


def router_fault(r: Rollout, seen: Observation, now: Instant) -> RouterFault | None:
    """Return what customers got that the weight cannot explain; None where nothing is known to be wrong."""
    bp = seen.split.target_bp
    if bp == 0:
        return _at_zero(seen)
    if r.phase == "complete" and (found := _at_full(seen)) is not None:
        return found
    e = seen.evidence.customers if seen.evidence is not None else None
    if e is None:
        return None
    if _fails(e):
        return _both_fail(r, seen, bp, now)
    off = share_off(e, bp, keeps=seen.keeps)
    if not off:
        return None
    real, want, cap = _share(e), bp / FULL_BP, r.spec.cap_bp / FULL_BP
    if real > max(3 * want, want + FAR) or real > cap + NEAR:
        return RouterFault(code="router.over", text=f"{off}: the target gets far more than it may", goes_home=True)
    return None if r.promoted else RouterFault(code="router.share", text=off)


def share_off(e: Evidence, weight_bp: int, *, keeps: bool = False) -> str:
    """Say so where the served share cannot be the weight that was set.

    Tolerated are 4 points plus 5 standard errors, since conversations come in clusters.

    Args:
        keeps: clients stay on their side by a cookie while a weight is raised: less than the weight is no fault, more is.
    """
    n = sum(a.attempts for a in e.arms.values())
    if n < SHARE_LEAST:
        return ""
    want, real = weight_bp / FULL_BP, _share(e)
    if (keeps and real < want) or abs(real - want) <= 0.04 + 5 * sqrt(want * (1 - want) / n):
        return ""
    return f"served share {real:.1%} is not the {want:.1%} that was set"


def home_kind(r: Rollout) -> Ended:
    """Return how a rollout ends that goes home."""
    if r.latched is not None or r.home_for.startswith(ROUTER):
        return "rolled_back"
    if r.home_for == "fallback":
        return "fell_back"
    return "lost_evidence" if r.home_for == "lost_evidence" else "aborted"


def home_cause(r: Rollout) -> str:
    """Return why a rollout goes home, for events and pages."""
    if r.latched is not None:
        return f"{r.latched.guardrail} FAIL (E {r.latched.e_value:.3g})"
    return r.home_for if r.home_for.startswith(ROUTER) else home_kind(r).replace("_", " ")


def _both_fail(r: Rollout, seen: Observation, bp: int, now: Instant) -> RouterFault:
    """Look for some seconds more, then go home; where many cells fail at a time, none is to blame: hold, and page once for all."""
    text = f"with {bp / 100:g} % on the target, customers of both sides get errors"
    if seen.both_failing >= MANY:
        text = f"customers of {seen.both_failing} cells get errors on both sides: what they share is at fault, holding"
        return RouterFault(code=ALL_FAIL, text=text, pages=not seen.is_all_paged)
    if r.hold_reason not in (BOTH_FAIL, ALL_FAIL) or r.lost_since is None or now - r.lost_since < LOOKED_FOR:
        return RouterFault(code=BOTH_FAIL, text=f"{text}: looking for {LOOKED_FOR.total_seconds():.0f} s", pages=False)
    return RouterFault(code=BOTH_FAIL, text=f"{text}: the split itself fails", goes_home=True)


def _share(e: Evidence) -> float:
    return e.arms["canary"].attempts / max(1, sum(a.attempts for a in e.arms.values()))


def _fails(e: Evidence) -> bool:
    """Tell whether half of the newest customers of each side got an error; by count, since seconds hold few where traffic is low."""
    both = (e.canary_outcomes[-NEWEST:], e.baseline_outcomes[-NEWEST:])
    return all(len(newest) >= LEAKED_LEAST and newest.count("x") >= FAILING * len(newest) for newest in both)


def _at_zero(seen: Observation) -> RouterFault | None:
    """Look at customers while nothing may be on the target: who answered them, and whether anybody did."""
    if seen.served is not None and seen.served.canary >= LEAKED_LEAST:
        text = f"the router sends customers to the target at weight 0 ({seen.served.canary} requests): nothing is begun"
        return RouterFault(code="router.leaks", text=text)
    newest = seen.calm.baseline_outcomes[-NEWEST:] if seen.calm is not None else ""
    if len(newest) == NEWEST and newest.count("x") >= FAILING * NEWEST:
        few = f"{newest.count('x')} of the newest {NEWEST}"
        text = f"customers get errors before anything has moved ({few}): nothing is begun"
        return RouterFault(code="source.failing", text=text)
    return None


def _at_full(seen: Observation) -> RouterFault | None:
    """Look at who answers once everything is to be on the target."""
    if seen.served is None or seen.served.baseline < LEAKED_LEAST:
        return None
    n = seen.served.baseline + seen.served.canary
    if seen.served.baseline <= 0.04 * n:
        return None
    text = f"the source still answers {seen.served.baseline} of {n} customers' requests at weight 100 %"
    return RouterFault(code="router.share", text=text)
