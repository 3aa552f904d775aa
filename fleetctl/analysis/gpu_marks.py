"""Judge, pure layer: what scrapes say of GPUs' faults, by GPU, and how it is kept in a cursor. Never a scrape, never a verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable

from fleetctl.analysis.counted import is_usable
from fleetctl.domain.records import Scrape

XID, ECC = "gpu_xid/last_code", "gpu_ecc_uncorrected_total"
"""Keys of a scrape's values; a GPU's own are followed by `#` and its label."""


def gpu_values(s: Scrape) -> dict[str, float]:
    """Return what a scrape says of faults, errors and codes by GPU; a value that is not there is not known, and never zero."""
    return {key: value for key, value in s.values.items() if key == "gpu_health" or key.startswith((XID, ECC))}


def gpu_marks(scrapes: Iterable[Scrape]) -> str:
    """Return a cursor's position: how the canary's GPUs stood there, so that what happens before the next scrape is not lost."""
    found = {s.replica: values for s in scrapes if s.arm == "canary" and is_usable(s) and (values := gpu_values(s))}
    return json.dumps(found, sort_keys=True) if found else ""


def read_marks(position: str) -> dict[str, dict[str, float]]:
    """Return what `gpu_marks` kept; nothing where it cannot be read."""
    try:
        found = json.loads(position or "{}")
        return {str(name): {str(k): float(v) for k, v in values.items()} for name, values in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
