"""Migrate, use-case layer: no start while the SLO budget is spent, or nobody can tell. Never imports an adapter; going home never asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetctl.domain.ids import CellId, PlanId
from fleetctl.errors import FleetctlError, StillPending
from fleetctl.ports.state import Store

MOST_ASKED_AFTER = 3
"""A source that could not be asked for so many cells is not asked for the rest."""


def ask_budget(plan: PlanId, cells: Sequence[CellId], store: Store, gate: BudgetGate | None) -> None:
    """Ask for those cells that would start under a plan; one that moves already goes on. Raises StillPending (pending.budget)."""
    if gate is None:
        return
    if cells := starting(plan, cells, store):
        gate(cells)


def starting(plan: PlanId, cells: Sequence[CellId], store: Store) -> list[CellId]:
    """Return the cells that would start under a plan: those that do not move under it already."""
    return [c for c in cells if (r := store.load(c)) is None or r.plan != plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetGate:
    """What is asked before a cell starts.

    Args:
        left: share of a cell's SLO budget that is left, 1 all of it, 0 or less spent; raises FleetctlError where it is not known.
        least: share that must be left, at least 0; more than that starts.
    """

    left: Callable[[CellId], float]
    least: float = 0.0

    def __call__(self, cells: Sequence[CellId]) -> None:
        """Refuse to start cells whose budget is spent or not known.

        Raises:
            StillPending: pending.budget, with every such cell and its reason.
        """
        open_: list[str] = []
        silent = 0
        for c in cells:
            if silent >= MOST_ASKED_AFTER:
                open_.append(f"{c}: not known, its source does not answer")
                continue
            try:
                left = self.left(c)
            except FleetctlError as e:
                silent += 1
                open_.append(f"{c}: not known: {e.message}")
                continue
            silent = 0
            if not left > self.least:  # a NaN is no budget either
                open_.append(f"{c}: {left:.1%} left, more than {self.least:.1%} is needed")
        if open_:
            text = f"the SLO budget of {len(open_)} of {len(cells)} cells is spent or not known; no cell was started."
            raise StillPending(
                "pending.budget", text, hint="Wait until it has recovered, then run the same command again", details=tuple(open_)
            )
