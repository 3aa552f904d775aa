"""Coming home, domain layer: all that a return needs when nothing else answers. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.domain.canonical import LATER
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.domain.units import Instant

HOME_TOKEN_STEP = 2**20
"""A store-free return writes at the router's floor plus this, so that a live controller finds itself stale. Source: design 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WayHome:
    """The way back of one cell, in a local file with an HMAC, rewritten by each plan.

    Args:
        paper: raw commands for a person when fleetctl itself is gone.
        baseline_backend, canary_backend: names in the router, "" for the usual ones.
        endpoints: of the source's replicas, where the router lets no probe choose a side.
        part_of: of a cohort: cell and workload whose requests it takes, so that their name brings it home too.
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
    """One cell is home.

    Args:
        ms_to_zero: from the order to the router showing 0, milliseconds.
        was_bp: weight before; reconciled: the store knows already; router: its name, "" where none was asked to lower.
        router_ms: from the first word to the router to its showing 0: without the probes before.
    """

    cell: CellId
    ms_to_zero: float
    was_bp: int
    token: Token
    source_proven: bool
    reported: str = ""
    router: str = ""
    router_ms: float = 0.0
