"""Doctor, use case layer: one row per need, its state, and the command that mends it. Read-only: never mends by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from fleetctl.errors import FleetctlError

NeedState = Literal["ok", "warn", "missing", "not configured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One need as it stands.

    Args:
        name: what is needed, such as "terraform" or "router lab"; detail: what was found.
        mend: the command that mends it, "" where none is needed.
        state: warn works with a limit; "not configured" is not needed by this fleet.
    """

    name: str
    state: NeedState
    detail: str
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedCheck:
    """A need and how to look at it; `look` may raise, then the need is missing."""

    name: str
    look: Callable[[], Need]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Every need, in the order asked."""

    needs: tuple[Need, ...]

    @property
    def is_healthy(self) -> bool:
        """Tell whether nothing is missing."""
        return all(need.state != "missing" for need in self.needs)


def diagnose(checks: Iterable[NeedCheck]) -> Diagnosis:
    """Look at every need; one that cannot be looked at is missing and hides no other."""
    return Diagnosis(needs=tuple(_look(check) for check in checks))


def _mend(hint: str) -> str:
    """Return a hint as a command; one that only says to run doctor mends nothing here."""
    return "" if "fleetctl doctor" in hint else hint.removeprefix("Run: ")


def _look(check: NeedCheck) -> Need:
    try:
        return check.look()
    except FleetctlError as e:
        return Need(name=check.name, state="missing", detail=f"{e.message} [{e.code}]", mend=_mend(e.hint))
    except Exception as e:
        return Need(name=check.name, state="missing", detail=f"cannot be checked: {type(e).__name__}: {e}")
