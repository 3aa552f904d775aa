"""Migrate, analysis layer: does a stored result of a check still count? Pure; never runs one."""

from __future__ import annotations

from datetime import timedelta

from fleetctl.domain.checks import CheckResult, CheckSeen
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import CheckSpec

AGAIN = timedelta(seconds=60)
"""After which a check that could not be made is tried again."""


def seen_check(spec: CheckSpec, result: CheckResult | None, arms: str, bound: str, now: Instant, *, is_running: bool) -> CheckSeen:
    """Return how a check stands: only a result of these very arms, settings and file counts, and only while it is fresh.

    Args:
        arms: hash of what both arms serve now, "" where nobody tells; bound: of the settings and file as they are now.
    """
    if is_running:
        return CheckSeen(name=spec.name, state="running", text="is running")
    if not arms:
        return CheckSeen(name=spec.name, state="unknown", text="an arm does not say what it serves")
    if result is None:
        return CheckSeen(name=spec.name, state="due", text="was never run")
    age = now - result.at
    if result.kind in ("NO_DATA", "PROVIDER_ERROR") and age <= AGAIN and result.bound == bound:
        return CheckSeen(name=spec.name, state="unknown", text=f"cannot be made ({result.why})")
    if result.arms != arms:
        return CheckSeen(name=spec.name, state="due", text="an arm serves something else than when it ran")
    if result.bound != bound:
        return CheckSeen(name=spec.name, state="due", text="its settings or its file have changed since it ran")
    if age > spec.valid_for:
        return CheckSeen(name=spec.name, state="due", text=f"ran {age.total_seconds() / 86_400:.1f} days ago")
    if result.kind == "PASS":
        return CheckSeen(name=spec.name, state="passed")
    if result.kind == "FAIL":
        return CheckSeen(name=spec.name, state="failed", text=result.why)
    if result.kind == "INCONCLUSIVE":
        more = f", about {result.missing:,} missing" if result.missing else ""
        return CheckSeen(name=spec.name, state="open", text=f"settled nothing ({result.why}{more})")
    return CheckSeen(name=spec.name, state="due", text=f"could not be made ({result.why})")
