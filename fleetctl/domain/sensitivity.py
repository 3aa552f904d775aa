"""Plan, domain layer: what a plan would be if prices or speeds were otherwise. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import CellId, PlanId, WorkloadId
from fleetctl.domain.units import Instant, Money

Told = Literal["move", "stay", "infeasible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way in which things could be, and the plan for it.

    Args:
        amd_factor: on the throughput of AMD accelerators; prices: the price book in words; price_book_id: its identity.
        cost_now, cost_then: USD per hour at those prices; flips: cells that it treats otherwise than the plan.
        by_book: pools that the book itself prices, of `pools`; the others go by list or their own price. None where it is no book's case.
    """

    name: str
    amd_factor: float
    prices: str
    price_book_id: str
    cost_now: Money
    cost_then: Money
    moves: int
    stays: int
    blocked: int
    flips: int
    by_book: int | None = field(default=None, metadata=LATER)
    pools: int = field(default=0, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One cell that at least one case treats otherwise than the plan; told: per case, in their order."""

    cell: CellId
    workload: WorkloadId
    cost_now: Money | None
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """All cases of one plan; the first is the plan itself. Flips: dearest cells first."""

    plan: PlanId
    made_at: Instant
    cases: tuple[Case, ...]
    flips: tuple[Flip, ...]
