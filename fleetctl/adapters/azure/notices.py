"""Provision and migrate, adapters layer: Azure's scheduled events (IMDS) as signals with their deadline. Never acts on one.

A Preempt notice is best effort and may leave under 30 s; MI300X hosts cannot be moved live: planned maintenance is a Redeploy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from fleetctl.domain.people import Signal
from fleetctl.domain.units import Instant

_SEVERITY: Mapping[str, str] = {
    "Preempt": "critical",
    "Terminate": "critical",
    "Redeploy": "critical",
    "Reboot": "warning",
    "Freeze": "warning",
}


def signals_of(document: object, hosts: Mapping[str, str], now: Instant) -> tuple[Signal, ...]:
    """Return one signal per event and host that is ours.

    Args:
        document: as IMDS gave it; hosts: cloud name of a host -> its id with us.
    """
    events = document.get("Events") if isinstance(document, dict) else None
    return tuple(s for event in (events if isinstance(events, list) else []) for s in _signals(event, hosts, now))


def _signals(event: object, hosts: Mapping[str, str], now: Instant) -> Iterator[Signal]:
    if not isinstance(event, dict) or event.get("EventStatus") not in ("Scheduled", "Started"):
        return
    kind = event.get("EventType")
    severity = _SEVERITY.get(kind) if isinstance(kind, str) else None
    names = event.get("Resources")
    if severity is None or not isinstance(names, list):
        return
    for name in names:
        if isinstance(name, str) and name in hosts:
            yield Signal(
                subject=hosts[name],
                kind=f"azure.{str(kind).lower()}",
                severity="critical" if severity == "critical" else "warning",
                seen_at=now,
                deadline=_when(event.get("NotBefore")) or now,
                source="azure-imds",
            )


def _when(text: object) -> Instant | None:
    if not isinstance(text, str) or not text:
        return None
    try:
        at: datetime = parsedate_to_datetime(text)
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
