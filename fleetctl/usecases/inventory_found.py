"""Inventory, use case layer: what discovery found beside what the fleet file declares. Never changes a fleet, never guesses a match."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from fleetctl.domain.catalog import Catalog
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.merge import MACHINE, Said, Thing, choose
from fleetctl.domain.people import Gap
from fleetctl.domain.pool import Sku
from fleetctl.domain.units import Instant, Scalar
from fleetctl.domain.workload import Cell, Existing, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPool:
    """Machines of one size in one region, as discovery found them.

    Args:
        pool: the fleet file's name for them, "" where it does not declare them; running: those that run.
        usd_per_hour: list price of those that run, None where no price is known.
        owners: who the tags name, the most frequent first.
    """

    cloud: str
    region: str
    sku: str
    priority: str
    pool: str
    vms: int
    running: int
    gpus: int
    vendor: str
    gpu: str
    usd_per_hour: Decimal | None
    owners: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that discovery found.

    Args:
        at: when was looked, None where never; things: every one, by kind and id.
        unclaimed: engines that no cell of the fleet file names.
    """

    at: Instant | None = None
    things: tuple[Thing, ...] = ()
    pools: tuple[FoundPool, ...] = ()
    unclaimed: tuple[Thing, ...] = ()
    doubts: tuple[Gap, ...] = ()
    by_cell: Mapping[str, CellFacts] = field(default_factory=dict)

    def of_kind(self, kind: str) -> tuple[Thing, ...]:
        """Return the things of one kind."""
        return tuple(t for t in self.things if t.kind == kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What all sources together say of one cell: the word that counts per fact, and those that contradict it."""

    chosen: Mapping[str, Said]
    others: Mapping[str, tuple[Said, ...]]

    def text(self, name: str, default: str = "") -> str:
        """Return a fact as text."""
        said = self.chosen.get(name)
        return default if said is None or said.value is None else str(said.value)

    def number(self, name: str) -> float | None:
        """Return a fact as a number, None where it is not known or none."""
        said = self.chosen.get(name)
        known = said is not None and isinstance(said.value, (int, float)) and not isinstance(said.value, bool)
        return float(said.value) if known and said is not None and said.value is not None else None


def match_found(fleet: Fleet, things: Sequence[Thing], catalog: Catalog | None, at: Instant | None, doubts: Iterable[Gap] = ()) -> Found:
    """Set what was found beside the fleet file.

    Args:
        things: merged, the fleet file's own among them.
    """
    by_key = {(t.kind, t.id): t for t in things}
    machines = [t for t in things if t.kind == MACHINE]
    engines = [t for t in things if t.kind == "engine"]
    pool_of = _pools_of(fleet, machines)
    claimed = _claims(fleet, engines)
    mine: dict[str, list[Thing]] = defaultdict(list)
    for engine in engines:
        if engine.id in claimed:
            mine[claimed[engine.id]].append(engine)
    tagged = _tagged(things)
    by_pool: dict[str, list[Thing]] = defaultdict(list)
    for machine in machines:
        if pool_of.get(machine.id):
            by_pool[pool_of[machine.id]].append(machine)
    workloads = {w.id: w for w in fleet.workloads}
    told = _told_of_pools(fleet, by_key)
    skus = {s.name: s for s in catalog.skus} if catalog else {}
    cells = {
        str(c.id): _cell(c, workloads[c.workload], by_key, mine[c.id], [*tagged[c.id], *tagged[c.workload]], by_pool[c.source])
        for c in fleet.cells
    }
    return Found(
        at=at,
        things=tuple(_completed(t, told.get(pool_of[t.id], {}), skus) if t.kind == MACHINE else t for t in things),
        pools=_found_pools(machines, pool_of, catalog),
        unclaimed=tuple(e for e in engines if e.id not in claimed),
        doubts=tuple(doubts),
        by_cell=cells,
    )


def _pools_of(fleet: Fleet, machines: Iterable[Thing]) -> dict[str, str]:
    """Return the declared pool of each machine: the one that it names, else, where it names none, the only one of its shape.

    A shape is size, region and priority. A machine that names a pool which nobody declared is in none.
    """
    names = {p.id for p in fleet.pools}
    shapes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for p in fleet.pools:
        shapes[p.sku.casefold(), p.region.casefold(), p.priority].append(p.id)
    out = {}
    for m in machines:
        named = m.text("pool")
        alike = shapes.get((m.text("sku").casefold(), m.text("region").casefold(), m.text("priority") or "regular"), [])
        out[m.id] = named if named in names else alike[0] if len(alike) == 1 and not named else ""
    return out


Told = Mapping[str, tuple[Scalar, str]]
"""Facts by name, each with its source."""


def _told_of_pools(fleet: Fleet, by_key: Mapping[tuple[str, str], Thing]) -> dict[str, Told]:
    """Return what the fleet file says of the machines of each pool: a workload or owner only where there is one alone."""
    users: dict[str, set[str]] = defaultdict(set)
    for c in fleet.cells:
        for pool_id in _pools_of_cell(c):
            users[pool_id].add(c.workload)
    owner_of = {str(w.id): w.owner for w in fleet.workloads}
    out: dict[str, Told] = {}
    for p in fleet.pools:
        declared = by_key.get(("pool", str(p.id)))
        source = declared.source if declared else "file"
        owners = {owner_of[w] for w in users[p.id]}
        values: dict[str, Scalar] = {"pool": p.id, "vendor": p.vendor, "sku": p.sku, "region": p.region}
        values |= {"workload": next(iter(users[p.id]))} if len(users[p.id]) == 1 else {}
        values |= {"owner": owners.pop()} if len(owners) == 1 else {}
        out[p.id] = {n: (v, source) for n, v in values.items() if v}
    return out


def _completed(machine: Thing, told: Told, skus: Mapping[str, Sku]) -> Thing:
    """Return a machine with what its declared pool and the catalogue say of it, where nobody who looked at it said so."""
    missing = {n: said for n, said in told.items() if not machine.text(n)}
    if machine.text("sku") and machine.text("sku") != told.get("sku", ("", ""))[0]:
        missing.pop("vendor", None)  # another size than its pool's may be another maker's
    sku = skus.get(machine.text("sku") or str(told.get("sku", ("", ""))[0]))
    if sku is not None:
        known: Told = {"gpus": (sku.accelerators, "catalogue"), "gpu": (sku.gpu, "catalogue")}
        missing |= {n: said for n, said in known.items() if said[0] and not machine.text(n)}
    if not missing:
        return machine
    return replace(
        machine,
        values={**machine.values, **{n: v for n, (v, _) in missing.items()}},
        origin={**machine.origin, **{n: source for n, (_, source) in missing.items() if source != machine.source}},
    )


def _pools_of_cell(cell: Cell) -> tuple[str, ...]:
    """Return the pools that serve a cell, or will: its source, and its target where it names one."""
    return (cell.source, cell.target.pool if isinstance(cell.target, Existing) else str(cell.target or ""))


def _claims(fleet: Fleet, engines: Iterable[Thing]) -> dict[str, str]:
    """Return the cell of each engine: the one whose router names its address, that it is tagged with, or the only one of its model."""
    by_endpoint: dict[str, str] = {}
    by_model: dict[str, list[str]] = defaultdict(list)
    models = {w.id: w.model.name for w in fleet.workloads}
    for c in fleet.cells:
        by_endpoint.update(dict.fromkeys(c.router.baseline_endpoints, c.id))
        by_model[models[c.workload].casefold()].append(c.id)
    canaries = {e for c in fleet.cells for e in c.router.canary_endpoints}
    names = {c.id for c in fleet.cells}
    out: dict[str, str] = {}
    for e in engines:
        alike = by_model.get(e.text("model").casefold(), [])
        if e.id in by_endpoint:
            out[e.id] = by_endpoint[e.id]
        elif e.text("cell") in names:
            out[e.id] = e.text("cell")
        elif len(alike) == 1 and e.id not in canaries and e.text("model"):
            out[e.id] = alike[0]
    return out


def _tagged(things: Iterable[Thing]) -> dict[str, list[Thing]]:
    """Return groups, deployments, services and target groups by the workload or cell that their tags name."""
    out: dict[str, list[Thing]] = defaultdict(list)
    for t in things:
        if t.kind in ("group", "deployment", "service", "target_group"):
            for name in {t.text("workload"), t.text("cell")} - {""}:
                out[name].append(t)
    return out


_SHARED = ("owner", "cost_centre", "tenant", "data_class")
_ONE_WORD = ("model", "software", "engine_version", "adapters", "context_tokens")


def _cell(
    cell: Cell,
    workload: Workload,
    by_key: Mapping[tuple[str, str], Thing],
    engines: list[Thing],
    groups: list[Thing],
    machines: list[Thing],
) -> CellFacts:
    said: dict[str, list[Said]] = defaultdict(list)
    for key in (("workload", str(workload.id)), ("cell", str(cell.id))):
        thing = by_key.get(key)
        if thing is not None:
            for name, value in thing.values.items():
                said[name].append(Said(value=value, source=thing.source_of(name), seen_at=thing.seen_at))
            for conflict in thing.conflicts:
                said[conflict.field] += conflict.others
    for name in _SHARED:
        _unanimous(said, name, [*groups, *machines])
    for name in _ONE_WORD:
        _unanimous(said, name, engines)
    for name in ("autoscaler", "minimum", "maximum", "gitops"):
        _unanimous(said, name, groups)
    _measured(said, engines, machines)
    chosen, others = {}, {}
    for name, words in said.items():
        chosen[name], contrary = choose(name, words)
        if contrary and name not in ("region", "source", "router"):
            others[name] = contrary
    return CellFacts(chosen=chosen, others=others)


def _unanimous(said: dict[str, list[Said]], name: str, things: Iterable[Thing]) -> None:
    """Add a fact that all who tell it tell alike; where they differ nothing is added, for a cell has one owner."""
    told = [t for t in things if t.text(name)]
    if told and len({t.text(name) for t in told}) == 1:
        said[name].append(Said(value=told[0].values[name], source=told[0].source_of(name), seen_at=told[0].seen_at))


def _measured(said: dict[str, list[Said]], engines: list[Thing], machines: list[Thing]) -> None:
    def add(name: str, value: Scalar, of: Thing) -> None:
        said[name].append(Said(value=value, source=of.source_of(name), seen_at=of.seen_at))

    rated = [(e, e.number("requests_per_s") or 0.0) for e in engines if e.number("requests_per_s") is not None]
    if rated and len(rated) == len(engines):  # one replica unheard and the sum would be wrong
        total = sum(rate for _, rate in rated)
        add("requests_per_s", round(total, 4), rated[0][0])
        for name in ("input_tokens", "output_tokens"):
            if total > 0 and all(e.number(name) is not None for e, rate in rated if rate):
                add(name, round(sum((e.number(name) or 0.0) * rate for e, rate in rated) / total, 1), rated[0][0])
    slow = [e for e in engines if e.number("p95_ms") is not None]
    if slow:
        worst = max(slow, key=lambda e: e.number("p95_ms") or 0.0)
        add("p95_ms", worst.values["p95_ms"], worst)
    used = [m for m in machines if m.number("gpu_use") is not None]
    if used:
        add("gpu_use", round(sum(m.number("gpu_use") or 0.0 for m in used) / len(used), 4), used[0])


def _found_pools(machines: Iterable[Thing], pool_of: Mapping[str, str], catalog: Catalog | None) -> tuple[FoundPool, ...]:
    together: dict[tuple[str, str, str, str, str], list[Thing]] = defaultdict(list)
    for m in machines:
        if m.text("sku"):
            key = (m.text("cloud"), m.text("region"), m.text("sku"), m.text("priority") or "regular", pool_of.get(m.id, ""))
            together[key].append(m)
    out = [_found_pool(key, group, catalog) for key, group in together.items()]
    return tuple(sorted(out, key=lambda p: (-(p.usd_per_hour or Decimal(0)), -p.gpus, p.region, p.sku, p.priority)))


def _found_pool(key: tuple[str, str, str, str, str], group: list[Thing], catalog: Catalog | None) -> FoundPool:
    cloud, region, name, priority, pool = key
    sku = catalog.sku(name) if catalog else None
    running = sum(m.text("state") in ("", "running") for m in group)
    price = catalog.price(name, region) if catalog and priority == "regular" else None
    gpus = sum(int(m.number("gpus") or 0) for m in group) or len(group) * (sku.accelerators if sku else 0)
    owners = Counter(m.text("owner") for m in group if m.text("owner"))
    seen = next((m.text("vendor") for m in group if m.text("vendor")), "")
    return FoundPool(
        cloud=cloud,
        region=region,
        sku=name,
        priority=priority,
        pool=pool,
        vms=len(group),
        running=running,
        gpus=gpus,
        vendor=sku.vendor if sku else seen,
        gpu=sku.gpu if sku else next((m.text("gpu") for m in group if m.text("gpu")), ""),
        usd_per_hour=None if price is None else price.usd_per_hour * running,
        owners=tuple(owner for owner, _ in sorted(owners.items(), key=lambda o: (-o[1], o[0]))),
        sources=tuple(sorted({m.source for m in group})),
    )
