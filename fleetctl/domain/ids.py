"""Every step, domain layer: names of things, safe in a socket command, PromQL, HCL and a file name. Never I/O."""

from __future__ import annotations

import hashlib
import re
from typing import NewType

WorkloadId = NewType("WorkloadId", str)
CellId = NewType("CellId", str)
PoolId = NewType("PoolId", str)
HostId = NewType("HostId", str)
PlanId = NewType("PlanId", str)
Sha256 = NewType("Sha256", str)
Token = NewType("Token", int)
"""Fencing number: plus one at every acquisition, never reused."""

ID_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_ID = re.compile(ID_PATTERN + r"\Z")


def is_id(text: str) -> bool:
    """Tell whether `text` may name a workload, cell, pool, host or plan (1 to 63 of a-z, 0-9 and inner -)."""
    return _ID.match(text) is not None


def require_id(text: str) -> str:
    """Return `text` if it may be an identifier.

    Raises:
        ValueError: it may not.
    """
    if not is_id(text):
        raise ValueError(f"{text!r} is not a name: use 1 to 63 of a-z, 0-9 and '-', not starting or ending with '-'")
    return text


def as_id(text: str) -> str:
    """Return an identifier for discovered text: itself where it is one, else its letters and digits and 8 digits of its hash."""
    if is_id(text):
        return text
    kept = re.sub(r"[^a-z0-9]+", "-", text.casefold()).strip("-")[-50:].strip("-")
    mark = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{kept}-{mark}" if kept else f"x-{mark}"
