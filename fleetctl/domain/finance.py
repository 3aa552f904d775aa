"""Report, domain layer: planned against realised money and energy, a row per cell and sum. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What can be added up; None where something is not known, never 0.

    Args:
        now, then, saving: USD per hour. overlap: USD while both sides are up; extra: of it, on top of today's bill; validation: of it,
            while the target serves no customer; kwh: all-in energy of both sides meanwhile. planned_*: by the plan's calendar.
        hours_both: that both sides were up so far; realised_saving: USD per hour that is saved already: nothing before release.
        kw_now, kw_then: all-in draw, estimated.
    """

    now: Decimal | None = None
    then: Decimal | None = None
    saving: Decimal | None = None
    planned_overlap: Decimal | None = None
    planned_extra: Decimal | None = None
    planned_validation: Decimal | None = None
    planned_kwh: Decimal | None = None
    kw_now: Decimal | None = None
    kw_then: Decimal | None = None
    hours_both: Decimal | None = None
    realised_overlap: Decimal | None = None
    realised_extra: Decimal | None = None
    realised_validation: Decimal | None = None
    realised_kwh: Decimal | None = None
    realised_saving: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinanceRow:
    """One line of the finance report.

    Args:
        row: cell; cost_centre (sum of its cells); shared (whole VMs and idle ones that no cell's share covers); fleet (the plan's bill).
        started: when both sides came up; ended: when one of them went: the target at home-coming, the source at release; None: both are up.
    """

    row: Literal["cell", "cost_centre", "shared", "fleet"]
    amounts: Amounts
    cost_centre: str = ""
    cells: int = 1
    workload: str = ""
    cell: str = ""
    outcome: str = ""
    reason: str = ""
    source: str = ""
    target: str = ""
    wave: int | None = None
    state: str = ""
    started: Instant | None = None
    ended: Instant | None = None
