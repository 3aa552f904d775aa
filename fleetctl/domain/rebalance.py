"""Rebalance, domain layer: limits of a run, a standing approval with its envelope, and what a run did. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import CellId, PlanId, PoolId
from fleetctl.domain.people import Actor, Reason
from fleetctl.domain.units import Instant, Money
from fleetctl.domain.workload import WorkloadClass

CLASSES: tuple[WorkloadClass, ...] = ("batch", "online", "realtime")
Direction = Literal["amd", "nvidia"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much may move, and what a move must bring.

    Args:
        window: in which moves are counted; moves: cells in it at most; share: of the fleet's GPUs in it at most, 0 to 1.
        dwell: a cell that has moved stays for this long.
        payback: time in which a move must earn back what it costs (both sides run meanwhile).
        min_saving_usd: USD per hour and moved replica that a run must save, else nothing moves.
        classes: that may move.
    """

    window: timedelta = timedelta(days=7)
    moves: int = 20
    share: float = 0.02
    dwell: timedelta = timedelta(days=14)
    payback: timedelta = timedelta(days=90)
    min_saving_usd: float = 0.0
    classes: tuple[WorkloadClass, ...] = CLASSES


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingApproval:
    """People's yes to moves that a schedule makes, within an envelope, until a day.

    Args:
        id: "s" and 11 hex digits of the digest of the envelope, so that the same terms signed by two people are one approval.
        lineage: of the fleet; until: last day, ISO date; signed: who and when.
    """

    id: str
    lineage: str
    moves: int
    window: timedelta
    share: float
    classes: tuple[WorkloadClass, ...]
    until: str
    signed: tuple[tuple[Actor, Instant], ...] = ()
    withdrawn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a cell is now, if not where the fleet file says.

    Args:
        replicas: it has there; at: since when.
    """

    pool: PoolId
    replicas: int
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One move of a run.

    Args:
        order: "migrate": the ordinary path to a new target; "home": back to the source that the fleet file names.
        saving_usd_per_hour: by its share of GPUs; payback_hours: in which that earns back both sides' cost (freeze windows that its wave
            waits for included), None where it never does.
        gpus: that it takes where it is; vendor: of the accelerators there, None in runs of older releases.
    """

    cell: CellId
    source: PoolId
    target: PoolId
    to: Direction
    order: Literal["migrate", "home"]
    replicas: int
    target_replicas: int
    gpus: int
    saving_usd_per_hour: Money | None
    payback_hours: float | None
    vendor: Direction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A cell that a plan without limits would move, and what keeps it."""

    cell: CellId
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRun:
    """What one run found, and what it began.

    Args:
        id: "r" and 11 hex digits; plan: "" where nothing was to move; begun: cells whose move it began.
        standing: the approval that it acted under, "" for a dry run.
        unlimited: moves that a plan without limits would make; cost_now, cost_then: USD per hour of all priced pools.
        on_top: USD, once, that both sides cost on top of today's bill; earned_at: when the saving has earned that, None where never.
        under_way: cells that moved or move already, whose saving is in cost_then too.
        open: it is beginning them, or died while it did; the next run looks what had begun.
    """

    id: str
    at: Instant
    plan: PlanId
    price_book_id: str
    shifts: tuple[Shift, ...]
    held: tuple[HeldBack, ...]
    cost_now: Money
    cost_then: Money
    unlimited: int
    gap_pct: float | None = None
    begun: tuple[CellId, ...] = ()
    standing: str = ""
    notes: tuple[str, ...] = ()
    open: bool = False
    on_top: Money | None = field(default=None, metadata=LATER)
    earned_at: Instant | None = field(default=None, metadata=LATER)
    under_way: int = field(default=0, metadata=LATER)
