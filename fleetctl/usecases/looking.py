"""Migrate, use-case layer: what a tick asks a cell's source of evidence. Never judges; what cannot be read is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleetctl.domain.evidence import LADDER_METRICS, Cursor, Evidence
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Rollout, RolloutSpec
from fleetctl.errors import ConfigInvalid, EvidenceUnavailable
from fleetctl.ports.traffic import EvidenceSource
from fleetctl.usecases.unexpected import Odd

Sources = Callable[[CellId], EvidenceSource]
THRESHOLD_LEAST = 1_000
"""Baseline requests from which latency quantiles are frozen. Source: p99 of fewer rests on under 10 requests."""


def mark_of(r: Rollout, sources: Sources, odd: Odd) -> Cursor | None:
    """Return where the evidence of a step that begins now begins; None where nobody can tell, or nothing is judged any more."""
    if r.direction == "home":
        return None  # nothing is judged on the way
    try:
        return odd.ask("the evidence source", lambda: sources(r.cell).mark(r.cell))
    except (EvidenceUnavailable, ConfigInvalid):
        return None


def read_of(r: Rollout, sources: Sources, odd: Odd) -> Evidence | None:
    """Return the evidence of this step; None where it cannot be read."""
    since = r.since
    if since is None:
        return None
    try:
        return odd.ask("the evidence source", lambda: sources(r.cell).read(r.cell, since))
    except (EvidenceUnavailable, ConfigInvalid):  # what a source needs may be gone since the step began: no evidence either
        return None


def with_thresholds(r: Rollout, sources: Sources, odd: Odd) -> tuple[Rollout, str]:
    """Freeze the baseline's latency quantiles during preflight, once, before any customer is on the target; and say what is wrong there."""
    if r.phase != "preflight" or r.since is None or r.since.thresholds is not None:
        return r, ""
    try:
        scales = scales_of(r.spec)
        frozen = odd.ask("the evidence source", lambda: sources(r.cell).freeze(r.cell, scales, THRESHOLD_LEAST))
    except EvidenceUnavailable:
        return r, ""
    except ConfigInvalid as e:  # a mistyped series would be silent for ever, and silence of events passes
        return r, e.message
    return (r if frozen is None else replace(r, since=replace(r.since, thresholds=frozen))), ""


def scales_of(spec: RolloutSpec) -> tuple[float, ...]:
    """Return the factors at which the ladder must be counted: 1, 1.5 and one plus every margin of any step that is a percentage."""
    margins = [g for p in spec.phases for g in p.guardrails if g.name in LADDER_METRICS]
    return tuple(sorted({1.0, 1.5} | {round(1 + m, 4) for g in margins for m in (g.margin, g.fail_margin, *g.rungs)}))
