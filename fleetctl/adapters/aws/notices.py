"""Provision and migrate, adapters layer: AWS's notices (spot interruption, rebalance, capacity block's end) as signals. Never acts on one.

A spot interruption leaves two minutes; instances of a capacity block are ended at its end, and AWS advises to be away half an hour before.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fleetctl.domain.people import Signal
from fleetctl.domain.units import Instant

BLOCK_LEAD = timedelta(minutes=30)
"""How long before a capacity block's end a host must be empty. Source: Amazon EKS user guide, "Capacity Blocks for ML"; read 2026-11-30."""


def spot_signal(document: object, host: str, now: Instant) -> Signal | None:
    """Return the signal of a host's `spot/instance-action` document, None where there is no action.

    Args:
        document: as the metadata service gave it, parsed; host: its id with us.
    """
    action = document.get("action") if isinstance(document, dict) else None
    if action not in ("terminate", "stop", "hibernate"):
        return None
    time = document.get("time") if isinstance(document, dict) else None
    deadline = _when(time) or now
    return Signal(subject=host, kind=f"aws.spot_{action}", severity="critical", seen_at=now, deadline=deadline, source="aws-imds")


def block_signal(host: str, ends: Instant, now: Instant) -> Signal:
    """Return the signal of a capacity block's end, its deadline half an hour before it."""
    deadline = ends - BLOCK_LEAD
    severity = "critical" if deadline - now < timedelta(hours=24) else "warning"
    return Signal(
        subject=host,
        kind="aws.block_end",
        severity="critical" if severity == "critical" else "warning",
        seen_at=now,
        deadline=deadline,
        source="aws-capacity-block",
    )


def _when(text: object) -> Instant | None:
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
