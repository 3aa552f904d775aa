"""Inventory, formats layer: named sets of rollout steps and the margins that a share can afford. Never judges.

Source: evidence.md 2 (margins by share, steps and bake times by traffic), evidence.md 4 (a FAIL margin is at most half of the PASS one).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from fleetctl.domain.evidence import LADDER_METRICS
from fleetctl.domain.fleet import PhaseSpec
from fleetctl.domain.workload import SLOW_MARGINS, Guardrail, GuardrailSpec

_END = (
    {"phase": "full", "weight": "95%", "bake": "60m"},
    {"phase": "soak", "weight": "95%", "bake": "7d"},
    {"phase": "complete", "weight": "100%"},
)
_START = ({"phase": "preflight"}, {"phase": "shadow"})

PRESETS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "low-traffic": (
        *_START,
        {"phase": "canary", "weight": "10%", "bake": "60m"},
        {"phase": "ramp", "weight": "50%", "bake": "120m"},
        *_END,
    ),
    "medium-traffic": (
        *_START,
        {"phase": "canary", "weight": "5%", "bake": "15m"},
        {"phase": "ramp", "weight": "25%", "bake": "30m"},
        {"phase": "ramp", "weight": "50%", "bake": "60m"},
        *_END,
    ),
    "high-traffic": (
        *_START,
        {"phase": "canary", "weight": "1%", "bake": "10m"},
        {"phase": "ramp", "weight": "5%", "bake": "10m"},
        {"phase": "ramp", "weight": "25%", "bake": "30m"},
        {"phase": "ramp", "weight": "50%", "bake": "60m"},
        *_END,
    ),
}
"""20 to 100, 100 to 1,000 and from 1,000 requests a minute and cell. A name keeps its meaning, margins included: approved plans are bound
to it by the fleet's digest (tests/golden/test_digests.py); what differs gets a new name."""

DEFAULT_PRESET = "medium-traffic"
_MARGINS = (
    (300, 0.05, (0.50, 0.50, 1.00, 1.00, 2.00)),
    (1_700, 0.02, (0.25, 0.25, 0.50, 0.50, 1.50)),
    (3_700, 0.01, (0.15, 0.15, 0.30, 0.30, 0.40)),
    (10_000, 0.005, (0.10, 0.10, 0.20, 0.20, 0.20)),
)
"""Up to this share in basis points: error margin as a difference of ratios, latency margin as a ratio per rung of the ladder.

Source: evidence.md 2; p99 at shares under 25 % from `make bench-canary` (the widest that the hours to PASS leave room for).
"""
_QUALITY_EXCESS = 0.02
"""Source: evidence.md 5, default excess of 2 points."""


def expand_steps(value: object) -> object:
    """Replace the name of a preset by its steps; anything else is returned as it is.

    Raises:
        ValueError: text that names no preset, or an empty list.
    """
    if isinstance(value, str):
        if value not in PRESETS:
            near = get_close_matches(value, PRESETS, n=1)
            raise ValueError(
                f"must be {', '.join(PRESETS)} or a list of steps, not {value!r}" + (f" (did you mean {near[0]!r}?)" if near else "")
            )
        steps: list[Any] = [dict(step) for step in PRESETS[value]]
        return steps
    if value == []:
        raise ValueError("must hold at least one step")
    return value


def default_guardrail(name: Guardrail, weight_bp: int, *, holds_back: bool = False) -> GuardrailSpec:
    """Return the margins that a share can afford.

    Args:
        weight_bp: share of buckets on the target, 0 to 10,000.
        holds_back: full and soak, where only a small control is left: there a FAIL needs the PASS margin.
    """
    if name.startswith("model_slow_"):
        return GuardrailSpec(name=name, margin=SLOW_MARGINS[0], fail_margin=SLOW_MARGINS[holds_back is False])
    errors, rungs = next((e, r) for up_to, e, r in _MARGINS if weight_bp <= up_to)
    margin = rungs[0] if name in LADDER_METRICS else _QUALITY_EXCESS if name == "quality" else errors
    return GuardrailSpec(
        name=name,
        margin=margin,
        fail_margin=default_fail_margin(name, margin, holds_back=holds_back),
        rungs=rungs if name in LADDER_METRICS else (),
    )


def default_fail_margin(name: Guardrail, margin: float, *, holds_back: bool = False) -> float:
    """Return what a FAIL must exceed where the file does not say: half of a latency margin up to 10 %, no points of errors.

    Source: evidence.md 4 (10 % with one canary host), evidence.md 6 trap 5 (the PASS margin while only a control is held back).
    """
    if holds_back:
        return margin
    if name in LADDER_METRICS:
        return min(0.10, margin / 2)
    return 0.0


def holds_back(phase: str) -> bool:
    """Tell whether only a small control is left on the source in this phase."""
    return phase in {"full", "soak"}


def preflight() -> PhaseSpec:
    """Return the step that every rollout begins with."""
    return PhaseSpec(phase="preflight", weight_bp=0, bake=timedelta(0))
