"""Fleets for the planning and view tests: the lab's shape, and small ones made from parts. Never real machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from fleetctl.assess import declared, memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.canonical import digest
from fleetctl.domain.fleet import Connection, Fleet, PhaseSpec, Policy
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Pool
from fleetctl.domain.provision import CapacityVerdict
from fleetctl.domain.workload import (
    AffinityKey,
    Cell,
    Guardrail,
    GuardrailSpec,
    Lane,
    Model,
    RouterRef,
    ShadowSpec,
    Slo,
    Traffic,
    Workload,
    WorkloadClass,
)
from fleetctl.planning.make_plan import make_plan
from fleetctl.planning.options import DEFAULT, PlanOptions

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ANA = Actor(kind="person", name="ana@example.com")


def guardrails(errors: float, latency: float) -> tuple[GuardrailSpec, ...]:
    """Both guardrails with the PASS margins given."""
    return (
        GuardrailSpec(name=Guardrail("errors"), margin=errors, fail_margin=0.0),
        GuardrailSpec(name=Guardrail("latency"), margin=latency, fail_margin=latency / 2),
    )


def lab_policy(**changes: object) -> Policy:
    """The lab's policy: short bakes, no approvals."""
    s = timedelta(seconds=1)
    steps = (
        PhaseSpec(phase="preflight", weight_bp=0, bake=0 * s),
        PhaseSpec(phase="shadow", weight_bp=0, bake=0 * s),
        PhaseSpec(phase="canary", weight_bp=1000, bake=20 * s, guardrails=guardrails(0.02, 0.25)),
        PhaseSpec(phase="ramp", weight_bp=5000, bake=15 * s, guardrails=guardrails(0.005, 0.25)),
        PhaseSpec(phase="full", weight_bp=9500, bake=8 * s, guardrails=guardrails(0.02, 0.25)),
        PhaseSpec(phase="soak", weight_bp=9500, bake=15 * s, guardrails=guardrails(0.02, 0.25)),
        PhaseSpec(phase="complete", weight_bp=10_000, bake=0 * s),
    )
    return Policy(**{"steps": steps, "approvals": 0, "wave_cells": 2, "warm_up": 3 * s, **changes})  # type: ignore[arg-type]


def workload(name: str, *, klass: WorkloadClass = "online", rate: float = 150.0, billions: float = 8.0, **changes: object) -> Workload:
    """A workload of a small Llama-like model on 1 GPU."""
    values: dict[str, object] = {
        "id": WorkloadId(name),
        "model": Model(
            name="llama-like", parameters_billion=billions, precision="bf16", context_tokens=8192, layers=32, kv_heads=8, head_dim=128
        ),
        "engine": "vllm",
        "klass": klass,
        "slo": Slo(latency_ms=2000.0),
        "traffic": Traffic(requests_per_s=rate, input_tokens=200.0, output_tokens=16.0),
        "serving": {"kind": "emulated", "log_sd": "0.25"},
    }
    return Workload(**(values | changes))  # type: ignore[arg-type]


def cell(name: str, work: str, *, region: str = "lab", source: str = "nvidia-lab", **changes: object) -> Cell:
    """A cell on the lab's router."""
    values: dict[str, object] = {
        "id": CellId(name),
        "workload": WorkloadId(work),
        "region": region,
        "source": PoolId(source),
        "router": RouterRef(name="lab"),
        "affinity": AffinityKey(kind="header", name="x-conversation-id"),
    }
    return Cell(**(values | changes))  # type: ignore[arg-type]


def pool(
    name: str, vendor: str, sku: str, *, region: str = "lab", count: int = 2, limit: int = 2, by: str = "existing", price: str = ""
) -> Pool:
    """A pool of VMs."""
    return Pool(
        id=PoolId(name),
        vendor=vendor,  # type: ignore[arg-type]
        sku=sku,
        region=region,
        count=count,
        limit=limit,
        provisioned_by=by,
        price_usd_per_hour=Decimal(price) if price else None,
    )


def lab_fleet(**changes: object) -> Fleet:
    """The lab: two waves of two cells, one NVIDIA pool and one MI300X pool, both emulated."""
    accepted = Lane(kind="accepted", reason="1 request/s cannot give latency evidence", actor=ANA)
    stream = Traffic(requests_per_s=10.0, input_tokens=200.0, output_tokens=16.0, streaming=True)
    slow = Traffic(requests_per_s=0.6, input_tokens=44.0, output_tokens=16.0)
    tiny = Model(name="SmolLM2-135M", parameters_billion=0.135, precision="f16", context_tokens=2048)
    values: dict[str, object] = {
        "name": "lab",
        "lineage": "3f2a",
        "serial": 1,
        "pools": (pool("nvidia-lab", "nvidia", "lab-nvidia"), pool("mi300x-lab", "amd", "lab-mi300x", count=0, by="lab")),
        "workloads": (
            workload("chat", replicas=2),
            workload("smollm", replicas=2, model=tiny, traffic=slow, shadow=ShadowSpec(), serving={"kind": "llama.cpp"}),
            workload("summary", replicas=2),
            workload("stream", replicas=2, traffic=stream),
        ),
        "cells": (
            cell("chat-lab", "chat", wave=1),
            cell("smollm-lab", "smollm", wave=1, lane=accepted),
            cell("summary-lab", "summary", wave=2),
            cell("stream-lab", "stream", wave=2, lane=Lane(kind="accepted", reason="streams have no latency evidence", actor=ANA)),
        ),
        "policy": lab_policy(),
        "routers": (Connection(name="lab", kind="haproxy"),),
    }
    return Fleet(**(values | changes))  # type: ignore[arg-type]


def plan_of(fleet: Fleet, capacity: tuple[CapacityVerdict, ...] = (), *, options: PlanOptions = DEFAULT, now: datetime = NOW) -> Plan:
    """Plan a fleet with declared assessments and the shipped catalogue."""
    assessments = tuple(declared(w, NOW) for w in fleet.workloads)
    return make_plan(fleet, load_catalog(), assessments, capacity, now, fleet_digest=digest(fleet), fit_of=memory_fit, options=options)
