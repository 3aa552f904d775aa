"""Migrate, adapters layer: an owner that is asked with a limit per whole call. Never waits longer, whatever client stands behind it.

A client's own time-outs count each connection and each read, its retries and its credential's chain come on top, and a helper program of
a kubeconfig has none: so the whole call is bounded here. Owners at one place share their patience: forty pools of one silent cluster wait
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fleetctl.adapters.deadline import Patience
from fleetctl.domain.holds import SILENT, Standing
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.errors import InventoryFailed
from fleetctl.ports.hands import Marks, Scaler

LIMIT_S = 3.0
"""Of one call: a tick may make three of them beside a router's 5 s, and ends within its lease of 15 s."""
SILENT_S = 10.0
T = TypeVar("T")


class Patient:
    """`Scaler` and `Marks` over another one's calls.

    Args:
        of: the owner; place: who answers there, for people; patience: shared by all owners of that place.
    """

    def __init__(self, of: Scaler | Marks, place: str, patience: Patience) -> None:
        self._of, self._place, self._patience = of, place, patience

    def find(self) -> tuple[Owner | Gap, ...]:
        """Ask for the owners."""
        return self._ask(self._of.find)

    def writer(self) -> str:
        """Ask who wrote last."""
        of: Marks = self._of  # type: ignore[assignment]
        return self._ask(of.writer)

    def standing(self, ref: str) -> Standing:
        """Ask for a minimum."""
        of: Scaler = self._of  # type: ignore[assignment]
        return self._ask(lambda: of.standing(ref))

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Set a minimum; whether it was set is not known where no answer came."""
        of: Scaler = self._of  # type: ignore[assignment]
        return self._ask(lambda: of.set_minimum(ref, was, to, default))

    def _ask(self, call: Callable[[], T]) -> T:
        try:
            return self._patience.ask(call)
        except TimeoutError as e:
            raise InventoryFailed(SILENT, f"{self._place}: {e}.") from e


def fresh() -> Patience:
    """Return the patience with one place."""
    return Patience(LIMIT_S, SILENT_S)
