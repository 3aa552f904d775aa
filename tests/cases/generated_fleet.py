"""Seeded fleets from the catalogue, for benches and property tests: 12 VM sizes, up to 4 regions, synthetic work. Never real ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from fleetctl.assess import memory_fit
from fleetctl.catalog import load_catalog
from fleetctl.domain.fleet import Connection, Fleet, PhaseSpec, Policy
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.pool import Pool, Sku
from fleetctl.domain.workload import Cell, Guardrail, GuardrailSpec, Lane, Model, RouterRef, Slo, Traffic, Workload, WorkloadClass

REGIONS = ("eastus2", "westus3", "swedencentral", "francecentral")
SIZES: tuple[tuple[str, str, str], ...] = (
    ("h100", "Standard_ND96isr_H100_v5", ""),
    ("h200", "Standard_ND96isr_H200_v5", ""),
    ("a100x8", "Standard_ND96amsr_A100_v4", ""),
    ("a100x1", "Standard_NC24ads_A100_v4", ""),
    ("a10", "Standard_NV36ads_A10_v5", ""),
    ("p5", "p5.48xlarge", "55.04"),
    ("p5en", "p5en.48xlarge", "63.30"),
    ("b200", "p6-b200.48xlarge", "113.93"),
    ("mi300x", "Standard_ND96isr_MI300X_v5", ""),
    ("mi300x-oci", "BM.GPU.MI300X.8", "48.00"),
    ("mi355x-oci", "BM.GPU.MI355X.8", "68.80"),
    ("mi300x-neo", "Standard_ND96is_MI300X_v5", "27.60"),
)
"""Name, SKU, and a price where the catalogue has none for every region: AWS and OCI list, Crusoe's 3.45 USD per GPU (planning.md 3)."""
MODELS = ((8.0, 32), (14.0, 48), (32.0, 64), (70.0, 80), (405.0, 126))
CLASSES: tuple[WorkloadClass, ...] = ("batch", "online", "realtime")
SOURCES = ("h100", "h200", "a100x8", "a100x1", "p5", "p5en")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a fleet looks like.

    Args:
        workloads: number; regions: 1 to 4; head_room: AMD quota as a share of the GPUs in use today.
    """

    workloads: int
    regions: int = 4
    head_room: float = 0.5


def generated_fleet(shape: Shape, seed: int = 0) -> Fleet:
    """Return a fleet of that shape; the same seed gives the same fleet."""
    rng = random.Random(seed)
    regions = REGIONS[: shape.regions]
    skus = {s.name: s for s in load_catalog().skus}
    size = {name: skus[sku] for name, sku, _ in SIZES}
    works, cells = [], []
    gpus: dict[tuple[str, str], int] = {}
    for i in range(shape.workloads):
        w = _workload(i, rng)
        home = rng.choice(regions)
        source = _source(w, size, rng)
        count = w.replicas * w.accelerators_per_replica
        gpus[source, home] = gpus.get((source, home), 0) + count
        others = tuple(r for r in regions if r != home) if rng.random() < 0.4 else ()
        lane = Lane(kind="stay", reason="contract") if rng.random() < 0.03 else Lane()
        works.append(w)
        cells.append(
            Cell(
                id=CellId(f"w{i}-{home}"),
                workload=w.id,
                region=home,
                source=PoolId(f"{source}-{home}"),
                router=RouterRef(name="edge"),
                lane=lane,
                regions=others,
            )
        )
    pools = _pools(regions, size, gpus, shape, rng)
    policy = Policy(
        steps=_steps(),
        wave_cells=max(5, shape.workloads // 20),
        power_kw={region: 2.3 * _today_kw(pools, region) for region in regions},
    )
    return Fleet(
        name="generated",
        lineage=f"seed-{seed}",
        serial=1,
        pools=pools,
        workloads=tuple(works),
        cells=tuple(cells),
        policy=policy,
        routers=(Connection(name="edge", kind="haproxy"),),
    )


def _workload(i: int, rng: random.Random) -> Workload:
    klass = rng.choices(CLASSES, (30, 45, 25))[0]
    billions, layers = rng.choices(MODELS, (35, 20, 20, 20, 5))[0]
    precision = rng.choice(("bf16", "fp8"))
    need = billions * (2.0 if precision == "bf16" else 1.0) * 1.35 + 14.0
    k = 1
    while k < 8 and k * 66.0 < need:
        k *= 2
    speed = {"target_speed": f"{rng.uniform(0.55, 1.25):.3f}"} if rng.random() < 0.5 else {}
    return Workload(
        id=WorkloadId(f"w{i}"),
        model=Model(
            name=f"llama-{billions:g}b",
            parameters_billion=billions,
            precision=precision,
            context_tokens=8192,
            layers=layers,
            kv_heads=8,
            head_dim=128,
        ),
        engine="vllm",
        klass=klass,
        slo=Slo(latency_ms=2000.0),
        traffic=Traffic(requests_per_s=rng.choice((4.0, 20.0, 80.0)), input_tokens=rng.choice((200.0, 600.0, 1200.0)), output_tokens=150.0),
        replicas=max(1, round(rng.lognormvariate(0.9, 0.8))),
        accelerators_per_replica=k,
        serving=speed,
    )


def _source(w: Workload, size: dict[str, Sku], rng: random.Random) -> str:
    names = [n for n in SOURCES if size[n].accelerators >= w.accelerators_per_replica]
    fitting = []
    for n in names:
        fit = memory_fit(w, size[n])
        if fit.needed_gib <= fit.available_gib:
            fitting.append(n)
    return rng.choice(fitting or ["h200"])


def _pools(
    regions: tuple[str, ...], size: dict[str, Sku], gpus: dict[tuple[str, str], int], shape: Shape, rng: random.Random
) -> tuple[Pool, ...]:
    total = sum(gpus.values())
    pools = []
    for region in regions:
        for name, sku, price in SIZES:
            per = size[name].accelerators
            count = -(-gpus.get((name, region), 0) // per)
            room = total * shape.head_room / len(regions) / per * rng.uniform(0.1, 0.4)
            amd = size[name].vendor == "amd"
            pools.append(
                Pool(
                    id=PoolId(f"{name}-{region}"),
                    vendor=size[name].vendor,
                    sku=sku,
                    region=region,
                    count=count,
                    limit=count + max(1, round(room if amd else count * 0.1)),
                    provisioned_by="azure",
                    price_usd_per_hour=_price(sku, region, price),
                )
            )
    return tuple(pools)


def _today_kw(pools: tuple[Pool, ...], region: str) -> float:
    return sum(p.count * (11.0 if "x1-" not in p.id and "a10-" not in p.id else 0.8) for p in pools if p.region == region)


def _steps() -> tuple[PhaseSpec, ...]:
    h = timedelta(hours=1)

    def guards(errors: float, latency: float) -> tuple[GuardrailSpec, ...]:
        return (
            GuardrailSpec(name=Guardrail("errors"), margin=errors, fail_margin=0.0),
            GuardrailSpec(name=Guardrail("latency"), margin=latency, fail_margin=latency / 2),
        )

    return (
        PhaseSpec(phase="preflight", weight_bp=0, bake=0 * h),
        PhaseSpec(phase="canary", weight_bp=1000, bake=1 * h, guardrails=guards(0.02, 0.25)),
        PhaseSpec(phase="ramp", weight_bp=5000, bake=2 * h, guardrails=guards(0.005, 0.25)),
        PhaseSpec(phase="full", weight_bp=9500, bake=2 * h, guardrails=guards(0.02, 0.25)),
        PhaseSpec(phase="soak", weight_bp=9500, bake=168 * h, guardrails=guards(0.02, 0.25)),
        PhaseSpec(phase="complete", weight_bp=10_000, bake=0 * h),
    )


def _price(sku: str, region: str, declared: str) -> Decimal | None:
    """Return the declared price, None where the catalogue has one for the region, else the SKU's cheapest."""
    if declared:
        return Decimal(declared)
    catalog = load_catalog()
    known = catalog.sku(sku)
    return None if catalog.price(sku, region) is not None or known is None else known.price_usd_per_hour
