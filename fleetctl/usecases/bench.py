"""Bench, use-case layer: from an endpoint's answers to the records that plans count with, and routes against each other. Never I/O.

A record is kept for every rate at which the SLO was met; a plan counts with the fastest of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from fleetctl.domain.bench import Point
from fleetctl.domain.catalog import Catalog, Performance


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was driven.

    Args:
        engine: with its version; accelerators: of the whole endpoint; tp: of one replica; route: native, hipify, scale, ...
    """

    gpu: str
    sku: str
    model: str
    precision: str
    klass: str
    engine: str
    accelerators: int
    tp: int
    route: str = "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """One route beside the best native runs on NVIDIA and on the same GPU, all of one precision; None where there is none.

    Args:
        nvidia: the GPU of that run on NVIDIA, "" where there is none.
        usd_per_million_tokens: output tokens, by the cheapest price of its size; None where no price is known.
    """

    gpu: str
    route: str
    precision: str
    engine: str
    as_of: str
    tokens_per_s: float
    of_nvidia: float | None
    of_native: float | None
    nvidia: str
    ttft_p95_ms: float | None
    tpot_p95_ms: float | None
    usd_per_million_tokens: Decimal | None


def rows_of(points: Sequence[Point], s: Subject, source: str, as_of: str) -> tuple[Mapping[str, str], ...]:
    """Return a record per point that meets the SLO."""
    return tuple(
        {
            "gpu": s.gpu,
            "model": s.model,
            "precision": s.precision,
            "class": s.klass,
            "tokens_per_s_per_gpu": f"{p.tokens_per_s / s.accelerators:.4f}",
            "kind": "own",
            "engine": s.engine if s.route == "native" else f"{s.engine}; route {s.route}",
            "source": source,
            "as_of": as_of,
            "sku": s.sku,
            "tp": str(s.tp),
            "low": f"{p.low / s.accelerators:.4f}",
            "high": f"{p.high / s.accelerators:.4f}",
            "requests_per_s": f"{p.requests_per_s:g}",
            "p50_ms": f"{p.p50_ms:g}",
            "p95_ms": f"{p.p95_ms:g}",
            "p99_ms": f"{p.p99_ms:g}",
            "ttft_p95_ms": "" if p.ttft_p95_ms is None else f"{p.ttft_p95_ms:g}",
            "tpot_p95_ms": "" if p.tpot_p95_ms is None else f"{p.tpot_p95_ms:g}",
        }
        for p in points
        if p.meets_slo and p.tokens_per_s > 0
    )


def route_of(record: Performance) -> str:
    """Return the route of a user's own run."""
    _, mark, route = record.engine.partition("; route ")
    return route if mark else "native"


def compare(records: Iterable[Performance], catalog: Catalog, model: str, klass: str) -> tuple[Against, ...]:
    """Return the best run per GPU, route and precision of one model and class, the fastest first."""
    best: dict[tuple[str, str, str], Performance] = {}
    for r in records:
        if r.kind == "own" and r.model == model and r.klass == klass:
            key = (r.gpu, route_of(r), r.precision)
            if key not in best or r.tokens_per_s > best[key].tokens_per_s:
                best[key] = r
    vendor = {g.name: g.vendor for g in catalog.gpus}
    nvidia: dict[str, Performance] = {}
    for (gpu, route, precision), r in best.items():
        if vendor.get(gpu) == "nvidia" and route == "native":
            nvidia[precision] = max(nvidia.get(precision, r), r, key=lambda x: x.tokens_per_s)
    out = []
    for (gpu, route, precision), r in best.items():
        native, other = best.get((gpu, "native", precision)), nvidia.get(precision)
        out.append(
            Against(
                gpu=gpu,
                route=route,
                precision=precision,
                engine=r.engine.partition("; route ")[0],
                as_of=r.as_of,
                tokens_per_s=r.tokens_per_s,
                of_nvidia=None if other is None else round(r.tokens_per_s / other.tokens_per_s, 4),
                of_native=None if native is None else round(r.tokens_per_s / native.tokens_per_s, 4),
                nvidia="" if other is None else other.gpu,
                ttft_p95_ms=r.ttft_p95_ms,
                tpot_p95_ms=r.tpot_p95_ms,
                usd_per_million_tokens=_usd(r, catalog),
            )
        )
    return tuple(sorted(out, key=lambda a: -a.tokens_per_s))


def _usd(r: Performance, catalog: Catalog) -> Decimal | None:
    each = [
        s.price_usd_per_hour / s.accelerators
        for s in catalog.skus
        if s.gpu == r.gpu and s.price_usd_per_hour is not None and s.cloud != "lab"
    ]
    if not each:
        return None
    return (min(each) / Decimal(repr(r.tokens_per_s)) / 3600 * 1_000_000).quantize(Decimal("0.0001"))
