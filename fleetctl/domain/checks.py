"""Migrate, domain layer: checks of both arms that must stand before a weight is raised. Never I/O; the rules are in fleetctl.analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fleetctl.domain.evidence import VerdictKind
from fleetctl.domain.units import Instant
from fleetctl.domain.workload import CheckName


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """How a check went on both arms of a cell, kept as a record.

    Args:
        arms: hash of both arms; bound: of the settings and of the file that were used. It says nothing of others.
        kind: NO_DATA where it could not be made; why: of anything but a PASS; missing: prompts or items still needed for a PASS.
        numbers: what was found, by name.
    """

    cell: str
    check: CheckName
    at: Instant
    arms: str
    bound: str
    kind: VerdictKind
    why: str = ""
    missing: int | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSeen:
    """How a check stands at one moment.

    Args:
        state: passed; failed; open: it settled nothing; due: never run, or what it said holds no more; running; unknown: nobody can say.
    """

    name: CheckName
    state: Literal["passed", "failed", "open", "due", "running", "unknown"]
    text: str = ""


def record_id(cell: str, check: CheckName) -> str:
    """Return the id of a check's newest result among the records."""
    return f"{cell} {check}"
