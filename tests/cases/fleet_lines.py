"""Writes a generated fleet as JSON Lines, the form that large fleets are read from. Only what generated fleets have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from fleetctl.domain.fleet import Fleet, PhaseSpec
from fleetctl.domain.workload import Cell, Workload

LINEAGE = "00000000-0000-4000-8000-000000000001"


def fleet_lines(fleet: Fleet) -> Iterator[str]:
    """Yield the lines of the file."""
    policy = fleet.policy
    head: dict[str, Any] = {
        "format_version": 1,
        "name": fleet.name,
        "lineage": LINEAGE,
        "routers": {r.name: {"kind": r.kind} for r in fleet.routers},
        "policy": {"wave_cells": policy.wave_cells, "power_kw": dict(policy.power_kw), "steps": [_step(s) for s in policy.steps]},
    }
    yield json.dumps(head)
    for p in fleet.pools:
        row: dict[str, Any] = {"pool": p.id, "vendor": p.vendor, "sku": p.sku, "region": p.region, "count": p.count, "limit": p.limit}
        row["provisioned_by"] = p.provisioned_by
        if p.price_usd_per_hour is not None:
            row["price_usd_per_hour"] = str(p.price_usd_per_hour)
        yield json.dumps(row)
    yield from (json.dumps(_workload(w)) for w in fleet.workloads)
    yield from (json.dumps(_cell(c)) for c in fleet.cells)


def _time(span: timedelta) -> str:
    return f"{span / timedelta(seconds=1):g}s"


def _step(s: PhaseSpec) -> dict[str, Any]:
    guards = {}
    for g in s.guardrails:
        unit, scale = ("%", 100.0) if g.name == "latency" else (" points", 100.0)
        guards[str(g.name)] = {"margin": f"{g.margin * scale:g}{unit}", "fail_margin": f"{g.fail_margin * scale:g}{unit}"}
    return {"phase": s.phase, "weight": f"{s.weight_bp}bp", "bake": _time(s.bake), **({"guardrails": guards} if guards else {})}


def _workload(w: Workload) -> dict[str, Any]:
    m = w.model
    return {
        "workload": w.id,
        "model": {
            "name": m.name,
            "parameters_billion": m.parameters_billion,
            "precision": m.precision,
            "context_tokens": m.context_tokens,
            "layers": m.layers,
            "kv_heads": m.kv_heads,
            "head_dim": m.head_dim,
        },
        "engine": w.engine,
        "class": w.klass,
        "slo": {"latency": f"{w.slo.latency_ms:g}ms"},
        "traffic": {
            "requests_per_s": w.traffic.requests_per_s,
            "input_tokens": w.traffic.input_tokens,
            "output_tokens": w.traffic.output_tokens,
        },
        "replicas": w.replicas,
        "accelerators_per_replica": w.accelerators_per_replica,
        "serving": dict(w.serving),
    }


def _cell(c: Cell) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": c.id, "workload": c.workload, "region": c.region, "source": c.source, "router": c.router.name}
    if c.regions:
        row["regions"] = list(c.regions)
    if c.lane.kind != "own":
        row["lane"] = {"kind": c.lane.kind, "reason": c.lane.reason, "actor": "generated"}
    return row
