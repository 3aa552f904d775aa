"""Plan, domain layer: when waves begin and end, when capacity is given back, and what running both sides costs. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetctl.domain.canonical import LATER
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.units import Instant, Money


@dataclass(frozen=True, slots=True, kw_only=True)
class CashLine:
    """What the fleet costs per hour by one way of counting; None where a price that it needs is not known.

    Args:
        name: list (the catalogue), contract (the fleet file's own prices first), commitments (prepaid VMs at their own rate).
    """

    name: str
    now: Money | None
    then: Money | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathUse:
    """What moving cells use of the way between two regions.

    Args:
        clouds: of source and target; round_trip_ms, is_private: as declared, None where no path is (one cloud needs none).
        cells: that move along it; egress: USD per hour of their prompts and answers, estimated.
    """

    regions: tuple[str, str]
    clouds: tuple[str, str]
    cells: int
    round_trip_ms: float | None = None
    is_private: bool | None = None
    egress: Money | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveDates:
    """When one wave begins, has its slowest cell in soak, and has its last soak behind it.

    Args:
        waits: names of freeze windows in its way; after: pools whose VMs have to be given back before it begins.
    """

    index: int
    start: Instant
    soak: Instant
    end: Instant
    waits: tuple[str, ...] = ()
    after: tuple[PoolId, ...] = field(default=(), metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Source VMs that serve no cell any more once a wave's soak is over; a person gives them back."""

    pool: PoolId
    vms: int
    wave: int
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTime:
    """How long the hosts of a pool take from bare to ready, as measured when some last did.

    Args:
        seconds: of the slowest host; models_seconds: of that, getting models; at: when it was measured.
    """

    pool: PoolId
    seconds: float
    models_seconds: float
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The plan in time, if it begins when it was made and evidence comes at the declared rates.

    A wave begins as soon as the one before is in soak, so soaks overlap.

    Args:
        validation: USD of the target's GPUs while they serve no customer yet (preflight, shadow); part of the plan's overlap cost.
        payback_hours: time in which the saving of the end earns what came on top of today's bill; None where nothing is saved.
        payback_at: from when on the bills so far are below today's; None where nothing is saved, or nothing came on top.
        after_freeze, extra_then: when the windows are over that waves wait for, and what would come on top of today's bill if begun then;
            None where no wave waits or that is not less.
        deadline: asked for; late: cells whose soak ends after it.
        ready: of the pools that get more VMs: no wave begins before its target's hosts can be ready. Pools never measured are left out.
        wave_cells: cells a wave with which none would be late; 0: no number would do; None where none is late.
    """

    start: Instant
    end: Instant
    waves: tuple[WaveDates, ...]
    releases: tuple[Release, ...]
    validation: Money
    payback_hours: float | None = None
    deadline: Instant | None = None
    late: tuple[CellId, ...] = ()
    ready: tuple[ReadyTime, ...] = field(default=(), metadata=LATER)
    wave_cells: int | None = field(default=None, metadata=LATER)
    payback_at: Instant | None = field(default=None, metadata=LATER)
    after_freeze: Instant | None = field(default=None, metadata=LATER)
    extra_then: Money | None = field(default=None, metadata=LATER)
