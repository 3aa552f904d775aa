"""Coming home, ports layer: the local files that a return needs when no store answers. Never an implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A cell went home without the store and the store does not know yet.

    Args:
        token: what the router was written with; the store's own must be lifted to at least this.
    """

    cell: CellId
    token: Token
    at: Instant
    actor: Actor


class WaysHome(Protocol):
    """One authenticated file per cell, and one mark per cell that went home without the store.

    Raises UnsafeFallback (fallback.tampered, fallback.no_way_home, fallback.unwritable) and CredentialsMissing
    (credentials.missing, credentials.open_file) for the key.
    """

    def write(self, way: WayHome) -> None:
        """Replace the cell's file in one step."""
        ...

    def read(self, c: CellId) -> WayHome:
        """Return the cell's way home; one changed byte is refused."""
        ...

    def read_all(self) -> tuple[WayHome, ...]:
        """Return every way home, by cell; one that is refused refuses all (read them one by one then, by `cells`)."""
        ...

    def cells(self) -> tuple[CellId, ...]:
        """Name the cells that have a file, whether it holds or not."""
        ...

    def mark(self, cell: CellId, token: Token, at: Instant, actor: Actor) -> Mark:
        """Note a return without the store; of two the one with the higher token stays."""
        ...

    def marked(self) -> tuple[CellId, ...]:
        """Name the cells that have a mark, whether it holds or not."""
        ...

    def read_mark(self, c: CellId) -> Mark:
        """Return the cell's mark; one changed byte is refused."""
        ...

    def clear_mark(self, c: CellId) -> None:
        """Forget a mark; idempotent."""
        ...
