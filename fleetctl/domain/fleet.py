"""Inventory, domain layer: the whole fleet as one value. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import CellId, PoolId, WorkloadId
from fleetctl.domain.people import Facts
from fleetctl.domain.pool import Commitment, Host, Pool
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import Cell, GuardrailSpec, Workload

Phase = Literal["preflight", "shadow", "canary", "ramp", "full", "soak", "complete", "release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretRef:
    """Where a secret lies; it is read at use and never stored.

    Args:
        kind: "env" (variable), "file" (0600), "command" is not offered here.
    """

    kind: Literal["env", "file"]
    name: str


FENCING_ROUTERS = frozenset({"haproxy", "httproute", "queue"})
"""Kinds of routers that compare tokens themselves: by our Lua, by the object's version, in a queue's transaction."""
GUARDED_ROUTERS = frozenset({"haproxy"})
"""Kinds of routers with a guard of ours inside."""
DRAWING_ROUTERS = frozenset({"alb", "httproute"})
"""Kinds of routers that draw the side of each request without a key by chance, so that its share is right only in the long run."""
WORK_ROUTERS = frozenset({"queue", "sqs"})
"""Kinds that split jobs: there are no requests, so no header and no key."""
MIRRORING_ROUTERS = frozenset({"envoy", "haproxy"})
"""Kinds of routers that can copy requests for a shadow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach one outside thing (a router, a metrics server).

    Args:
        kind: the adapter, such as "haproxy".
        settings: strings the adapter knows (socket, map folder, log folder, address).
    """

    name: str
    kind: str
    settings: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, SecretRef] = field(default_factory=dict)

    @property
    def fences(self) -> bool:
        """Tell whether this router refuses a stale token itself."""
        return self.kind in FENCING_ROUTERS and self.settings.get("fence") != "single_writer"

    @property
    def guards_leases(self) -> bool:
        """Tell whether something beside this router takes a weight home when nobody renews its lease."""
        return self.kind in GUARDED_ROUTERS and self.settings.get("fence") != "single_writer"

    @property
    def mirrors(self) -> bool:
        """Tell whether this router can copy requests: HAProxy does it in our Lua."""
        return self.kind in MIRRORING_ROUTERS and (self.kind != "haproxy" or self.settings.get("fence") != "single_writer")

    def guards(self, cell: str, baseline_backend: str) -> bool:
        """Tell whether that guard knows the cell's source: it looks for the usual backend, never for one with a name of its own.

        Args:
            baseline_backend: as the fleet file names it, "" for the usual one.
        """
        return self.guards_leases and baseline_backend in ("", f"{cell}_baseline")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpec:
    """One step of a rollout.

    Args:
        weight_bp: share of buckets on the target, 0 to 10,000.
        bake: least time at this step.
        guardrails: with this step's margins.
    """

    phase: Phase
    weight_bp: int
    bake: timedelta
    guardrails: tuple[GuardrailSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeWindow:
    """When nothing advances (rollback always may).

    Args:
        start, end: aware instants.
    """

    name: str
    start: Instant
    end: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPath:
    """The way between two regions, the same in both directions.

    Args:
        round_trip_ms: measured; is_private: private addresses reach across (peering, a dedicated line, a VPN).
        egress_usd_per_gb: for a byte that leaves either side; None where nobody declared it.
    """

    one: str
    other: str
    round_trip_ms: float
    is_private: bool = False
    egress_usd_per_gb: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules a migration keeps; defaults are design section 7 and evidence.md 2.

    Args:
        approvals: people needed on a plan besides who made it; 0 lets the newest plan count as approved.
        require_signatures: only signed approvals count, of at least one person besides the author.
        cap_bp: the most a target may ever serve.
        warm_up: start of a replica's life that is left out of evidence.
        lost_evidence_home: after how long without evidence one cell goes home.
        step_deadline: longest stay at a step before it is INCONCLUSIVE.
        weight_lease: how long a weight stands without a tick.
        power_kw: most all-in draw per region while both sides run, kW; a region that is not named has no limit.
        target_gpus: most GPUs of AMD pools while both sides run; None: no limit.
        budget_usd_per_hour: most that all VMs may cost while both sides run; None: no limit.
        horizon: time in which a move must earn back what it costs.
        target_share: most GPUs of AMD pools as a share of all GPUs that the fleet has today, 0 to 1; None: no limit.
        home_within: from the order to no new request on the target at most; a router that takes longer moves no cell. None: no promise.
        cooling: "air" per region whose halls cannot cool by liquid; a region that is not named can do both.
    """

    steps: tuple[PhaseSpec, ...]
    approvals: int = 1
    wave_cells: int = 5
    cap_bp: int = 10_000
    warm_up: timedelta = timedelta(minutes=5)
    lost_evidence_home: timedelta = timedelta(seconds=120)
    step_deadline: timedelta = timedelta(hours=72)
    weight_lease: timedelta = timedelta(seconds=180)
    freeze: tuple[FreezeWindow, ...] = ()
    order: tuple[str, ...] = ("batch", "online", "realtime")
    power_kw: Mapping[str, float] = field(default_factory=dict)
    target_gpus: int | None = None
    budget_usd_per_hour: float | None = None
    horizon: timedelta = timedelta(days=90)
    target_share: float | None = field(default=None, metadata=LATER)
    cooling: Mapping[str, str] = field(default_factory=dict, metadata=LATER)
    require_signatures: bool = field(default=False, metadata=LATER)
    home_within: timedelta | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All of it: what the fleet file declares and discovery found.

    Args:
        lineage: identity of this fleet, made once; serial: plus one at each change.
    """

    name: str
    lineage: str
    serial: int
    pools: tuple[Pool, ...]
    workloads: tuple[Workload, ...]
    cells: tuple[Cell, ...]
    policy: Policy
    routers: tuple[Connection, ...] = ()
    hosts: tuple[Host, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    provenance: tuple[Facts, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[Connection, ...] = ()
    paths: tuple[NetworkPath, ...] = field(default=(), metadata=LATER)
    evidence: tuple[Connection, ...] = field(default=(), metadata=LATER)
    notify: tuple[Connection, ...] = field(default=(), metadata=LATER)

    def pool(self, id_: PoolId) -> Pool:
        """Return the pool of that name. Raises KeyError."""
        return next((p for p in self.pools if p.id == id_), None) or _missing("pool", id_)

    def workload(self, id_: WorkloadId) -> Workload:
        """Return the workload of that name. Raises KeyError."""
        return next((w for w in self.workloads if w.id == id_), None) or _missing("workload", id_)

    def cell(self, id_: CellId) -> Cell:
        """Return the cell of that name. Raises KeyError."""
        return next((c for c in self.cells if c.id == id_), None) or _missing("cell", id_)

    def router(self, name: str) -> Connection:
        """Return the connection of that router. Raises KeyError."""
        return next((r for r in self.routers if r.name == name), None) or _missing("router", name)


def _missing(kind: str, id_: str) -> Any:
    raise KeyError(f"no {kind} {id_!r} in the fleet")
