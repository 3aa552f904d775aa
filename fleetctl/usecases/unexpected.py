"""Migrate, use-case layer: what one port did that its contract does not foresee stays that cell's matter. Never decides, never hides it.

A defect in one source, router or owner must not end the tick of the cells behind it; it is told with its type and the code
`tick.unexpected`. Whatever ends the process (KeyboardInterrupt, SystemExit) goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from fleetctl.domain.rollout import Rollout
from fleetctl.errors import FleetctlError
from fleetctl.rollout.decide import MOST_TOLD

T = TypeVar("T")
UNEXPECTED = "tick.unexpected"
_LONGEST = 200


def as_error(what: str, e: Exception) -> FleetctlError:
    """Return an unforeseen exception as one with a code; its words may come from anywhere, so they are cut and made printable."""
    words = "".join(ch if ch.isprintable() else " " for ch in str(e))[:_LONGEST]
    return FleetctlError(
        "tick.unexpected",
        f"{what} did what nobody foresaw: {type(e).__name__}: {words}".rstrip(": "),
        hint="Please report it; the cell goes on once it is gone",
    )


class Odd:
    """What ports did in one tick that their contracts do not foresee, by type; the tick goes on without their answer."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def ask(self, what: str, call: Callable[[], T]) -> T | None:
        """Return what the call returns, None where it fails in a way that its contract does not name. Raises FleetctlError."""
        try:
            return call()
        except FleetctlError:
            raise
        except Exception as e:
            self.said[type(e).__name__] = as_error(what, e).message
            return None

    def news(self, r: Rollout) -> Iterator[tuple[str, str]]:
        """Yield type and text of what this rollout was not told of yet: the same defect at every look is one event."""
        return ((kind, text) for kind, text in self.said.items() if _mark(kind) not in r.arms.told)

    def told(self, r: Rollout) -> Rollout:
        """Return the rollout that knows of all of it."""
        new = tuple(_mark(kind) for kind, _ in self.news(r))
        return replace(r, arms=replace(r.arms, told=(*r.arms.told, *new)[-MOST_TOLD:])) if new else r


def _mark(kind: str) -> str:
    return f"{UNEXPECTED} {kind}"
