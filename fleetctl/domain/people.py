"""Every step, domain layer: who did it, where a fact came from, and what a machine signalled. Never I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fleetctl.domain.units import Instant, Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who causes an event; on every event from day one."""

    kind: Literal["person", "schedule", "judge", "breaker"]
    name: str
    via: Literal["cli", "api", "timer"] = "cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What one source said of one subject, and when; a sidecar of the fleet, not a wrapper of its fields.

    Args:
        values: the first names the subject: its kind and its id, such as {"machine": "i-0abc", "sku": "p5.48xlarge"}.
        source: its kind, then its name and part, such as "aws prod/us-east-1".
    """

    values: Mapping[str, Scalar]
    source: str
    seen_at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What a source could not tell, and why; stated instead of left out.

    Args:
        code: of the error behind it, such as "credentials.missing"; mend: what to do about it.
    """

    scope: str
    reason: str
    source: str
    code: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A machine's own warning: a GPU fault, a spot notice, a lost host.

    Args:
        subject: a host, pool or cell id; pool: that it belongs to, "" where that is not known.
        deadline: when it acts by itself, if it says so.
    """

    subject: str
    kind: str
    severity: Literal["info", "warning", "critical"]
    seen_at: Instant
    deadline: Instant | None = None
    source: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something was decided: a stable code for programs and one sentence for people."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One finding about a file or a plan, with its place.

    Args:
        path: file, or the address of a resource; empty where there is none.
        line: 1-based; 0 where there is none.
    """

    severity: Literal["error", "warning"]
    code: str
    text: str
    path: str = ""
    line: int = 0
