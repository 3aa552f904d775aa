"""Provision: what clouds announce becomes signals that keep the deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.adapters.aws.notices import block_signal, spot_signal
from fleetctl.adapters.azure.notices import signals_of

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def _event(kind: str, not_before: str, status: str = "Scheduled") -> dict[str, object]:
    return {"EventType": kind, "EventStatus": status, "Resources": ["vm-1", "vm-9"], "NotBefore": not_before}


@pytest.mark.parametrize(
    ("kind", "severity"), [("Preempt", "critical"), ("Terminate", "critical"), ("Redeploy", "critical"), ("Freeze", "warning")]
)
def test_azure_events_keep_their_deadline(kind: str, severity: str) -> None:
    document = {"Events": [_event(kind, "Mon, 30 Nov 2026 12:00:30 GMT")]}
    (signal,) = signals_of(document, {"vm-1": "mi300x-1"}, NOW)
    assert (signal.subject, signal.kind, signal.severity) == ("mi300x-1", f"azure.{kind.lower()}", severity)
    assert signal.deadline == NOW + timedelta(seconds=30)


def test_an_azure_event_without_a_time_acts_now_and_a_finished_one_not_at_all() -> None:
    (signal,) = signals_of({"Events": [_event("Preempt", "", "Started")]}, {"vm-1": "a"}, NOW)
    assert signal.deadline == NOW
    assert signals_of({"Events": [_event("Preempt", "", "Completed"), _event("Unheard", "")]}, {"vm-1": "a"}, NOW) == ()


@pytest.mark.parametrize("hostile", [None, [], {"Events": [None, 3, {"EventType": [], "EventStatus": "Scheduled"}]}, {"Events": {}}])
def test_what_is_not_a_document_is_no_signal(hostile: object) -> None:
    assert signals_of(hostile, {"vm-1": "a"}, NOW) == ()
    assert spot_signal(hostile, "a", NOW) is None


def test_an_aws_spot_notice_keeps_its_deadline() -> None:
    signal = spot_signal({"action": "terminate", "time": "2026-11-30T12:02:00Z"}, "h100-1", NOW)
    assert signal is not None
    assert (signal.kind, signal.deadline) == ("aws.spot_terminate", NOW + timedelta(minutes=2))
    late = spot_signal({"action": "stop", "time": "soon"}, "h100-1", NOW)
    assert late is not None
    assert late.deadline == NOW


def test_a_capacity_block_must_be_left_half_an_hour_before_its_end() -> None:
    signal = block_signal("h100-1", NOW + timedelta(hours=2), NOW)
    assert (signal.deadline, signal.severity) == (NOW + timedelta(minutes=90), "critical")
    assert block_signal("h100-1", NOW + timedelta(days=7), NOW).severity == "warning"
