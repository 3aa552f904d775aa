"""Provision and migrate, adapters layer: AWS's notices (spot, maintenance, a capacity block's end) as signals. Never acts.

A spot interruption leaves two minutes; instances of a capacity block are ended at its end, and AWS advises to be away half an hour before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from fleetctl.domain.people import Signal
from fleetctl.domain.pool import Host
from fleetctl.domain.units import Instant

BLOCK_LEAD = timedelta(minutes=30)
"""How long before a capacity block's end a host must be empty. Source: Amazon EKS user guide, "Capacity Blocks for ML"; read 2026-11-30."""
DRAIN_LEAD = timedelta(hours=1)
"""How long before its deadline a notice begins to move customers; one further off only warns: until then the machine is paid for."""
SPOT_LEAD = timedelta(minutes=2)
"""What an interruption leaves. Source: Amazon EC2 user guide, "Spot Instance interruption notices"; read 2026-11-30."""
_TAKES = frozenset({"instance-stop", "instance-retirement"})
_DISTURBS = frozenset({"instance-reboot", "system-reboot", "system-maintenance"})
"""Codes of scheduled events. Source: Amazon EC2 user guide, "Types of scheduled events"; read 2026-11-30."""
_OVER = ("[completed]", "[canceled]")
_AT_ONCE = 100


def spot_signal(document: object, host: str, now: Instant) -> Signal | None:
    """Return the signal of a host's `spot/instance-action` document, None where there is no action.

    Args:
        document: as the metadata service gave it, parsed; host: its id with us.
    """
    action = document.get("action") if isinstance(document, dict) else None
    if action not in ("terminate", "stop", "hibernate"):
        return None
    time = document.get("time") if isinstance(document, dict) else None
    return _signal(host, f"spot_{action}", "critical", now, _when(time) or now, "aws-imds")


def maintenance_signals(document: object, host: str, now: Instant) -> tuple[Signal, ...]:
    """Return the signals of a host's `events/maintenance/scheduled` document, a list; () for anything else."""
    events = document if isinstance(document, list) else []
    return tuple(
        s
        for e in events
        if isinstance(e, dict) and e.get("State", "active") == "active"
        for s in _event(host, e.get("Code"), e.get("Description"), e.get("NotBefore"), now, "aws-imds")
    )


def block_signal(host: str, ends: Instant, now: Instant) -> Signal:
    """Return the signal of a capacity block's end, its deadline half an hour before it."""
    return _signal(host, "block_end", _severity(ends - BLOCK_LEAD, now), now, ends - BLOCK_LEAD, "aws-capacity-block")


def api_signals(ec2: Any, hosts: Sequence[Host], now: Instant) -> tuple[Signal, ...]:
    """Return what EC2's own API says of the hosts of a pool: scheduled events, spot interruptions, ends of capacity blocks.

    Args:
        ec2: a boto3 client of the pool's region; hosts: known by the variable cloud_id, else by their private address.

    Raises:
        Exception: whatever boto3 raises; who asks makes silence of it.
    """
    found: list[Signal] = []
    for part in (hosts[i : i + _AT_ONCE] for i in range(0, len(hosts), _AT_ONCE)):
        instances = dict(_instances(ec2, part))
        if instances:
            names = {str(i["InstanceId"]): host for host, i in instances.items()}
            found += (*_scheduled(ec2, names, now), *_interrupted(ec2, names, now), *_blocks(ec2, instances, now))
    return tuple(found)


def _instances(ec2: Any, hosts: Sequence[Host]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    ids = {dict(h.variables).get("cloud_id", ""): str(h.id) for h in hosts}
    ids.pop("", None)
    addresses = {h.address: str(h.id) for h in hosts if not dict(h.variables).get("cloud_id")}
    for name, wanted in (("instance-id", ids), ("private-ip-address", addresses)):
        key = "InstanceId" if name == "instance-id" else "PrivateIpAddress"
        for page in _pages(ec2, "describe_instances", name, wanted):
            for instance in (i for r in page["Reservations"] for i in r["Instances"]):
                host = wanted.get(str(instance.get(key, "")))
                if host is not None and instance["State"]["Name"] in ("pending", "running"):
                    yield host, instance


def _scheduled(ec2: Any, names: Mapping[str, str], now: Instant) -> Iterator[Signal]:
    for page in ec2.get_paginator("describe_instance_status").paginate(InstanceIds=list(names)):
        for status in page["InstanceStatuses"]:
            for e in status.get("Events") or ():
                yield from _event(names[status["InstanceId"]], e.get("Code"), e.get("Description"), e.get("NotBefore"), now, "aws-ec2")


def _interrupted(ec2: Any, names: Mapping[str, str], now: Instant) -> Iterator[Signal]:
    for page in _pages(ec2, "describe_spot_instance_requests", "instance-id", names):
        for request in page["SpotInstanceRequests"]:
            status = request.get("Status") or {}
            code = str(status.get("Code") or "")
            if code.startswith("marked-for-") and request.get("InstanceId") in names:
                kind = {"marked-for-stop": "spot_stop"}.get(code, "spot_terminate")
                marked = _when(status.get("UpdateTime")) or now
                yield _signal(names[request["InstanceId"]], kind, "critical", now, marked + SPOT_LEAD, "aws-ec2")


def _blocks(ec2: Any, instances: Mapping[str, Mapping[str, Any]], now: Instant) -> Iterator[Signal]:
    inside = {host: str(i.get("CapacityReservationId") or "") for host, i in instances.items()}
    wanted = {r: r for r in inside.values() if r}
    ends: dict[str, Instant] = {}
    if wanted:
        for page in ec2.get_paginator("describe_capacity_reservations").paginate(CapacityReservationIds=list(wanted)):
            for r in page["CapacityReservations"]:
                at = _when(r.get("EndDate"))
                if r.get("ReservationType") == "capacity-block" and at is not None:
                    ends[r["CapacityReservationId"]] = at
    for host, reservation in inside.items():
        if reservation in ends:
            yield block_signal(host, ends[reservation], now)


def _pages(ec2: Any, call: str, name: str, wanted: Iterable[str]) -> Iterable[Mapping[str, Any]]:
    """Return a listing by a filter: an id that is gone is no error there."""
    values = [w for w in wanted if w]
    found: Iterable[Mapping[str, Any]] = ec2.get_paginator(call).paginate(Filters=[{"Name": name, "Values": values}]) if values else ()
    return found


def _event(host: str, code: object, text: object, not_before: object, now: Instant, source: str) -> Iterator[Signal]:
    if not isinstance(code, str) or code not in _TAKES | _DISTURBS or str(text or "").lower().startswith(_OVER):
        return
    deadline = _when(not_before) or now
    yield _signal(host, code.replace("-", "_"), _severity(deadline, now) if code in _TAKES else "warning", now, deadline, source)


def _severity(deadline: Instant, now: Instant) -> Literal["warning", "critical"]:
    return "critical" if deadline - now < DRAIN_LEAD else "warning"


def _signal(host: str, kind: str, severity: Literal["warning", "critical"], now: Instant, deadline: Instant, source: str) -> Signal:
    return Signal(subject=host, kind=f"aws.{kind}", severity=severity, seen_at=now, deadline=deadline, source=source)


def _when(at: object) -> Instant | None:
    """Return a time as boto3 gives it, or written as ISO 8601 or in the way of mails (the metadata service writes both)."""
    if isinstance(at, str):
        try:
            at = parsedate_to_datetime(at) if "," in at or " " in at else datetime.fromisoformat(at)
        except (ValueError, TypeError):
            return None
    if not isinstance(at, datetime):
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
