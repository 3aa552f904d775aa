"""Release, domain layer: giving a pool's machines back: what was asked for, by whom, and how far it got. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.canonical import LATER, digest
from fleetctl.domain.ids import HostId, PlanId, PoolId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Check
from fleetctl.domain.units import Instant

Role = Literal["source", "target", "unused"]
"""What the pool was to the cells: they left it, they came from it, or nothing was ever routed to it."""
FINISHED = frozenset({"done", "gone"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One wish to give a pool back; approvals are for exactly this one.

    Args:
        kind: "ours" is destroyed by us, "handoff" is written down for its owner.
        hosts: that are given back; role: decides what must be proven first.
        asked_by: whose own approval does not count; step: how far it got.
        gone: routers (or cells) that do not answer, and of which a person says that they are gone for good, or never were.
        seen: a source of the inventory has seen its machines since it was handed over; only then can one tell that they are gone.
        moves: the migrations after which it is given back, as "CELL PLAN ATTEMPT": who said yes after one of them said nothing of the next.
    """

    pool: PoolId
    kind: Literal["ours", "handoff"]
    hosts: tuple[HostId, ...]
    role: Role
    asked_by: Actor
    at: Instant
    step: Literal["asked", "destroying", "done", "handed_over", "gone"] = "asked"
    gone: tuple[str, ...] = ()
    seen: bool = False
    moves: tuple[str, ...] = field(default=(), metadata=LATER)

    @property
    def digest(self) -> Sha256:
        """What an approval is bound to: all but how far it got."""
        said = [*([self.gone] if self.gone else []), *([["moves", *self.moves]] if self.moves else [])]
        return digest([self.pool, self.kind, self.hosts, self.role, self.asked_by.name, self.at, *said])

    @property
    def id(self) -> PlanId:
        """Its name for `fleetctl approve`."""
        return PlanId(f"r{self.digest[:12]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseView:
    """A release and what stands in its way.

    Args:
        checks: each must hold; approved_by: people besides who asked; missing: how many more are needed.
        standing: machines that were made for the pool and never handed out; they go too.
    """

    release: Release
    checks: tuple[Check, ...]
    approved_by: tuple[str, ...]
    missing: int
    standing: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Tell whether nothing stands in the way."""
        return self.missing == 0 and all(c.ok for c in self.checks)
