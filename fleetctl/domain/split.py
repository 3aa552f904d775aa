"""Traffic, domain layer: how a cell's buckets are split, and what a router answers. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.units import FULL_BP, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Split, cap and the weight's own lease travel together.

    Args:
        target_bp: share of buckets on the target, 0 to cap_bp.
        cap_bp: the most it may ever serve, 0 to 10,000.
        token: fencing number of the writer; as read, the highest the router has seen (the floor).
        lease_until: after this instant the guard takes the weight home.
        unseen: as read: what carries traffic and has not said that it goes by these weights, "" where nothing is known of any.
    """

    cell: CellId
    target_bp: int
    cap_bp: int
    token: Token
    lease_until: Instant
    unseen: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.target_bp <= self.cap_bp <= 10_000:
            raise ValueError(f"split of {self.cell}: 0 <= {self.target_bp} <= cap {self.cap_bp} <= 10000 does not hold")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The router shows what was set (read back).

    Args:
        reported: names what failed without holding it up; unfiled: start-up files are among that, so a restart begins otherwise.
    """

    split: Split
    reported: str = ""
    unfiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """The target has seen a higher token: this writer is not the writer any more."""

    cell: CellId
    seen: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Streams still open on the drained pool; 0 when all have finished."""

    open_streams: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Requests that STARTED after a cursor, counted by the server that answered; the only proof that a split holds.

    Args:
        last_canary_start: start of the newest request that the target got, None where it got none.
    """

    baseline: int
    canary: int
    last_canary_start: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCapabilities:
    """What a router can do.

    Args:
        switch_ms: measured time from set to the last new request, None until measured.
        fence: "target" compares tokens inside the router; "single_writer" cannot.
        served_s: how far back served counts must reach to hold anything: some are told by the minute, and late.
        keyless_off: by how many requests the target's part of any run of requests without a key may be off its share; None where each is
            drawn by chance.
        tells: what proves that a weight carries traffic: "itself" it is read from what routes; "gateway" what was read says whether
            those who route go by it; "counts" served counts alone.
        keeps: it keeps clients to their side by a cookie while a weight is raised, so less than the weight may be served for a while.
        look_s: how often a cell may be looked at, at most: some give few answers a second.
    """

    switch_ms: float | None
    streaming: bool
    mirror: bool
    fence: Literal["target", "single_writer"]
    weight_lease: Literal["router", "none"] = "none"
    served_s: float = 60.0
    keyless_off: int | None = None
    tells: Literal["itself", "gateway", "counts"] = "itself"
    look_s: float = 0.0
    keeps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a real completion proved of one pool for one cell.

    Args:
        ready, total: replicas.
        age_s: seconds since the oldest of the completions it rests on.
    """

    pool: PoolId
    cell: CellId
    ready: int
    total: int
    age_s: float
    detail: str = ""

    @property
    def share(self) -> float:
        """Ready share of the pool's replicas for this cell, 0 to 1."""
        return self.ready / self.total if self.total else 0.0


def stays_bp(target_bp: int, source_share: float) -> int:
    """Return what must stay of a weight, basis points: no more go home than ready replicas of the source can take.

    Args:
        target_bp: the weight now; source_share: ready share of the source, 0 to 1.
    """
    return min(target_bp, round((1.0 - source_share) * FULL_BP))
