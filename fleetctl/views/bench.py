"""Bench, view layer: points of a curve and routes as tables. Never I/O."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.domain.bench import Point
from fleetctl.usecases.bench import Against
from fleetctl.views.output import Column, Table


def points_table(points: Sequence[Point]) -> Table:
    """Return one row per rate."""
    heads = ("REQ/S", "TOK/S", "P95 MS", "TTFT P95", "TPOT P95", "FAILED", "SLO", "LOW", "HIGH", "P50 MS", "P99 MS")
    rows = [
        (
            *(f"{p.requests_per_s:g}", f"{p.tokens_per_s:,.1f}", _whole(p), _ms(p.ttft_p95_ms), _ms(p.tpot_p95_ms)),
            *(f"{p.failed}/{p.answered + p.failed}", "met" if p.meets_slo else f"missed: {p.missed}"),
            *(f"{p.low:,.1f}", f"{p.high:,.1f}", f"{p.p50_ms:,.0f}", f"{p.p99_ms:,.0f}"),
        )
        for p in points
    ]
    columns = tuple(Column(title=h, right=h != "SLO", wide=h in heads[7:]) for h in heads)
    is_whole = any(p.answered and p.ttft_p95_ms is None for p in points)
    foot = ("Answers were not streamed: no time to first token, none per token.",) if is_whole else ()
    return Table(columns=columns, rows=tuple(rows), foot=foot)


def _whole(p: Point) -> str:
    return f"{p.p95_ms:,.0f}" if p.answered else "-"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def routes_table(found: Sequence[Against]) -> Table:
    """Return one row per GPU, route and precision; "-" where there is nothing to compare with; and in words what each route costs."""
    heads = ("GPU", "ROUTE", "PREC", "TOK/S/GPU", "OF NVIDIA", "OF NATIVE", "USD/M TOK", "TTFT P95", "TPOT P95", "ENGINE", "AS OF")
    rows = [
        (
            *(a.gpu, a.route, a.precision or "-", f"{a.tokens_per_s:,.1f}"),
            "-" if a.of_nvidia is None else f"{a.of_nvidia:.0%}",
            "-" if a.of_native is None else f"{a.of_native:.0%}",
            "-" if a.usd_per_million_tokens is None else f"{a.usd_per_million_tokens:,.3f}",
            *(_ms(a.ttft_p95_ms), _ms(a.tpot_p95_ms), a.engine, a.as_of),
        )
        for a in found
    ]
    right = ("TOK", "OF", "USD", "TTFT", "TPOT")
    columns = tuple(Column(title=h, right=h.startswith(right), shrink=int(h == "GPU"), wide=h in heads[7:]) for h in heads)
    return Table(columns=columns, rows=tuple(rows), foot=tuple(_cost(a) for a in found if a.route != "native"))


def _cost(a: Against) -> str:
    """Say what a route costs against native code on the same GPU, and against NVIDIA."""
    native = "no native run there to compare with" if a.of_native is None else f"{_change(a.of_native)} of native code there"
    nvidia = "no native run on NVIDIA" if a.of_nvidia is None else f"{_change(a.of_nvidia)} of {a.nvidia}"
    return f"{a.route} on {a.gpu} ({a.precision or 'precision not told'}): {native}; {nvidia}."


def _change(ratio: float) -> str:
    return f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'} than the throughput"
