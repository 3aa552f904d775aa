"""Bench: what each field is held against. Lower is better unless the field is in `AT_LEAST`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BARS: Mapping[str, float] = {
    "aa_false_rollback_upper95": 0.01,
    "migration_false_rollback_upper95": 0.01,
    "errors_05_10_median": 6300,
    "errors_05_10_by12000": 0.85,
    "errors_05_10_share5_median": 3000,
    "errors_01_06_median": 3200,
    "errors_01_06_share5_median": 1300,
    "latency10_median": 1800,
    "latency10_share5_median": 950,
    "latency10_token_median": 350,
    "latency20_margin10_median": 2100,
    "tail_by12000": 0.70,
    "hard_failure_within100": 0.995,
    "bound_ratio_05_10": 1.3,
    "bound_ratio_01_06": 1.5,
    "bound_ratio_latency10": 2.5,
    "pass_false_at_2x_margin": 0.01,
    "pass_hours_p90_200": 2.8,
    "cold_start_false_rollback": 0.01,
    "host_effect_false_rollback": 0.01,
    "cluster_false_rollback": 0.01,
    "quality_excess2_n90": 3100,
    "look_8000_seconds": 0.2,
}
AT_LEAST = frozenset({"errors_05_10_by12000", "tail_by12000", "hard_failure_within100"})


def misses(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that miss their bar, or that have no number."""
    return {name: fields.get(name) for name, bar in BARS.items() if not _meets(name, fields.get(name), bar)}


def _meets(name: str, value: Any, bar: float) -> bool:
    if not isinstance(value, int | float):
        return False
    return value >= bar if name in AT_LEAST else value <= bar


def table(fields: Mapping[str, Any]) -> str:
    """Return the fields with bars as a Markdown table: the engine, with what is staked anew beside it, the whole rule, the tools."""
    tools: Mapping[str, Mapping[str, Any]] = fields.get("baselines", {})
    head = ["field", "bar", "fleetctl", "and late ones", "whole rule", *(name.replace("_", " ") for name in tools)]
    rows = [head, ["---"] * len(head)]
    for name, bar in BARS.items():
        sign = "at least" if name in AT_LEAST else "at most"
        cells = [fields.get(name), fields.get(f"{name}_late"), fields.get(f"{name}_shipped"), *(own.get(name) for own in tools.values())]
        rows.append([f"`{name}`", f"{sign} {bar:g}", *(_text(c) for c in cells)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _text(value: Any) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if value >= 20 else f"{value:.4g}"
