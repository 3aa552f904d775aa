"""Coming home, domain layer: a person's wish to let the target serve all of a cell whose source is dead. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.domain.canonical import digest
from fleetctl.domain.ids import CellId, PlanId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant

SIGNATURES = 2
"""People besides whoever asked. Source: design sections 3 and 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapLift:
    """One wish to lift one cell's cap; signatures are of exactly this one.

    Args:
        plan, attempt: of the rollout that stood when it was asked; until: after this instant nobody can sign it any more.
    """

    cell: CellId
    plan: PlanId
    attempt: int
    asked_by: Actor
    at: Instant
    until: Instant
    reason: str = ""

    @property
    def digest(self) -> Sha256:
        """What a signature is bound to."""
        return digest(self)

    @property
    def id(self) -> PlanId:
        """Its name for `fleetctl approve`."""
        return PlanId(f"l{self.digest[:12]}")
