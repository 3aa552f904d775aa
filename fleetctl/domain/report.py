"""Report, domain layer: all that a report shows, gathered. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId, Sha256
from fleetctl.domain.plan import Plan
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.sensitivity import Sensitivity
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """One chain of the audit log.

    Args:
        cell: None for the fleet's own; events: links; head: hash of the last, "" where there is none.
        broken: what is wrong with the first link that does not hold, "" where all hold.
    """

    cell: CellId | None
    events: int
    head: Sha256
    broken: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCount:
    """What the clients themselves counted."""

    requests: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """One report.

    Args:
        looks: per cell, oldest first; events: of all chains, by time.
        lab: (name, "real" or "emulated", what it is) per part of a lab; () elsewhere.
        clients: None where nobody counted at the clients; sensitivity: of the newest plan, None where it was not worked out.
    """

    made_at: Instant
    fleet: Fleet
    plan: Plan | None
    rollouts: tuple[Rollout, ...] = ()
    looks: Mapping[CellId, tuple[LookRow, ...]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    chains: tuple[ChainHead, ...] = ()
    lab: tuple[tuple[str, str, str], ...] = ()
    clients: ClientCount | None = None
    sensitivity: Sensitivity | None = None
