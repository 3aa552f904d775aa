"""Bench, view layer: points of a curve and routes as tables. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.domain.bench import Point
from fleetctl.usecases.bench import Against
from fleetctl.views.output import Column, Table


def points_table(points: Sequence[Point]) -> Table:
    """Return one row per rate."""
    heads = ("REQ/S", "TOK/S", "LOW", "HIGH", "P50 MS", "P95 MS", "P99 MS", "FAILED", "SLO")
    rows = [
        (
            f"{p.requests_per_s:g}",
            f"{p.tokens_per_s:,.1f}",
            f"{p.low:,.1f}",
            f"{p.high:,.1f}",
            f"{p.p50_ms:,.0f}",
            f"{p.p95_ms:,.0f}",
            f"{p.p99_ms:,.0f}",
            f"{p.failed}/{p.answered + p.failed}",
            "met" if p.meets_slo else "missed",
        )
        for p in points
    ]
    return Table(columns=tuple(Column(title=h, right=h != "SLO") for h in heads), rows=tuple(rows))


def routes_table(found: Sequence[Against]) -> Table:
    """Return one row per GPU and route; "-" where there is nothing to compare with."""
    heads = ("GPU", "ROUTE", "ENGINE", "TOK/S/GPU", "OF NVIDIA", "OF NATIVE", "USD/M TOK", "AS OF")
    rows = [
        (
            a.gpu,
            a.route,
            a.engine,
            f"{a.tokens_per_s:,.1f}",
            "-" if a.of_nvidia is None else f"{a.of_nvidia:.0%}",
            "-" if a.of_native is None else f"{a.of_native:.0%}",
            "-" if a.usd_per_million_tokens is None else f"{a.usd_per_million_tokens:,.3f}",
            a.as_of,
        )
        for a in found
    ]
    columns = tuple(Column(title=h, right=h.startswith(("TOK", "OF", "USD")), shrink=int(h == "ENGINE")) for h in heads)
    return Table(columns=columns, rows=tuple(rows))
