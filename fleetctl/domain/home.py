"""Coming home, domain layer: all that a return needs when nothing else answers. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.domain.canonical import LATER
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.domain.units import Instant

HOME_TOKEN_STEP = 2**20
"""A store-free return writes at the router's floor plus this, so that a live controller finds itself stale. Source: design 6."""
GUARD_TOKENS = 8
"""A guard takes one number each time that it takes a lapsed weight home, so that a holder stopped before it cannot write after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayHome:
    """The way back of one cell, in a local file with an HMAC, rewritten by each plan.

    Args:
        paper: raw commands for a person when fleetctl itself is gone.
        baseline_backend, canary_backend: names in the router, "" for the usual ones.
        endpoints: of the source's replicas, where the router lets no probe choose a side.
        part_of: of a cohort: cell and workload whose requests it takes, so that their name brings it home too.
        wave: of the plan that wrote it, 0 where that plan does not move the cell; released: its source was given back since.
    """

    fleet: str
    cell: CellId
    workload: WorkloadId
    region: str
    tenant: str
    klass: str
    router: Connection
    source: PoolId
    cap_bp: int
    paper: tuple[str, ...]
    made_at: Instant
    baseline_backend: str = ""
    canary_backend: str = ""
    format_version: int = 1
    endpoints: tuple[str, ...] = field(default=(), metadata=LATER)
    part_of: tuple[str, ...] = field(default=(), metadata=LATER)
    wave: int = field(default=0, metadata=LATER)
    released: bool = field(default=False, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which cells a person wants home: those that fit every part that is not empty; within a part, any of its values.

    Args:
        names: of workloads and cells; everything: all cells, narrowed by the other parts.
    """

    names: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    waves: tuple[int, ...] = ()
    everything: bool = False

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing was asked for."""
        return not (self.everything or self.names or self.narrows)

    @property
    def narrows(self) -> bool:
        """Tell whether it asks for more than names: then a file that cannot be read may be of a cell that is meant."""
        return bool(self.regions or self.tenants or self.classes or self.waves)


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeTime:
    """What one router took from the order to go home to showing 0, read back, milliseconds; newest last."""

    router: str
    took_ms: tuple[float, ...]
    at: Instant

    @property
    def slowest_ms(self) -> float:
        """Return the slowest of them."""
        return max(self.took_ms, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """One cell is home, or as far as its source can take it.

    Args:
        ms_to_zero: from the order to the router showing what it was set to, milliseconds.
        was_bp: weight before; left_bp: what is still on the target, since no more of the source answers.
        ready, total: replicas of the source that answered a real completion, and how many there are; 0 where they were not asked.
        unseen: what carries traffic and has not said that it goes by the weight that was set, "" where nothing is known of any.
        router: its name, "" where none was asked to lower; router_ms: from the first word to it to its showing that: without the probes.
    """

    cell: CellId
    ms_to_zero: float
    was_bp: int
    token: Token
    source_proven: bool
    reported: str = ""
    left_bp: int = 0
    ready: int = 0
    total: int = 0
    router: str = ""
    router_ms: float = 0.0
    unseen: str = ""

    @property
    def is_home(self) -> bool:
        """Whether nothing is left on the target, as far as its router can tell."""
        return self.left_bp == 0 and not self.unseen
