"""Provision: what clouds announce becomes signals that keep the deadline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fleetctl.adapters.aws.notices import api_signals, block_signal, maintenance_signals, spot_signal
from fleetctl.adapters.azure.notices import signals_of
from fleetctl.adapters.kubernetes.notices import signals_of_node
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.pool import Host

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
    signal = block_signal("h100-1", NOW + timedelta(minutes=89), NOW)
    assert (signal.deadline, signal.severity) == (NOW + timedelta(minutes=59), "critical")
    assert block_signal("h100-1", NOW + timedelta(hours=2), NOW).severity == "warning", "a block is paid for to its end"


def _at(minutes: float) -> str:
    return (NOW + timedelta(minutes=minutes)).strftime("%d %b %Y %H:%M:%S GMT")


def test_aws_maintenance_moves_customers_an_hour_before_it_and_no_sooner() -> None:
    rows = [
        {"Code": "instance-retirement", "NotBefore": _at(50), "State": "active"},
        {"Code": "instance-stop", "NotBefore": _at(60 * 24 * 14), "State": "active"},
        {"Code": "system-reboot", "NotBefore": _at(5), "State": "active"},
        {"Code": "instance-stop", "NotBefore": _at(5), "State": "completed"},
        {"Code": "instance-stop", "NotBefore": _at(5), "Description": "[Canceled] The instance is running on degraded hardware"},
        {"Code": "unheard-of", "NotBefore": _at(5)},
        7,
    ]
    found = maintenance_signals(rows, "h100-1", NOW)
    assert [(s.kind, s.severity) for s in found] == [
        ("aws.instance_retirement", "critical"),
        ("aws.instance_stop", "warning"),
        ("aws.system_reboot", "warning"),
    ]
    assert found[0].deadline == NOW + timedelta(minutes=50)
    assert maintenance_signals({"Events": rows}, "h100-1", NOW) == ()


class _Ec2:
    """EC2's answers, in the shapes of its API reference."""

    def __init__(self, **pages: list[dict[str, object]]) -> None:
        self.pages = pages
        self.asked: list[tuple[str, dict[str, object]]] = []

    def get_paginator(self, call: str) -> _Ec2:
        self.call = call
        return self

    def paginate(self, **options: object) -> list[dict[str, object]]:
        self.asked.append((self.call, options))
        return self.pages.get(self.call, [])


def _host(n: int, cloud_id: str = "") -> Host:
    variables = (("cloud_id", cloud_id),) if cloud_id else ()
    return Host(id=HostId(f"h100-{n}"), pool=PoolId("h100"), address=f"10.0.0.{n}", variables=variables)


def _instance(n: int, reservation: str = "") -> dict[str, object]:
    made = {"InstanceId": f"i-{n}", "PrivateIpAddress": f"10.0.0.{n}", "State": {"Name": "running"}}
    return {**made, **({"CapacityReservationId": reservation} if reservation else {})}


def test_ec2_tells_of_events_interruptions_and_the_end_of_a_capacity_block() -> None:
    event = {"Code": "instance-retirement", "NotBefore": NOW + timedelta(minutes=30), "Description": "The instance is on degraded hardware"}
    reservations = [
        {"CapacityReservationId": "cr-1", "ReservationType": "capacity-block", "EndDate": NOW + timedelta(minutes=80)},
        {"CapacityReservationId": "cr-2", "ReservationType": "default", "EndDate": NOW + timedelta(minutes=1)},
    ]
    status = {"Code": "marked-for-termination", "UpdateTime": NOW - timedelta(seconds=20)}
    ec2 = _Ec2(
        describe_instances=[{"Reservations": [{"Instances": [_instance(1, "cr-1"), _instance(2, "cr-2"), _instance(3)]}]}],
        describe_instance_status=[{"InstanceStatuses": [{"InstanceId": "i-2", "Events": [event]}, {"InstanceId": "i-1"}]}],
        describe_spot_instance_requests=[{"SpotInstanceRequests": [{"InstanceId": "i-3", "Status": status}, {"Status": {}}]}],
        describe_capacity_reservations=[{"CapacityReservations": reservations}],
    )
    found = {s.subject: s for s in api_signals(ec2, [_host(1, "i-1"), _host(2, "i-2"), _host(3, "i-3")], NOW)}
    assert {h: (s.kind, s.severity) for h, s in found.items()} == {
        "h100-1": ("aws.block_end", "critical"),
        "h100-2": ("aws.instance_retirement", "critical"),
        "h100-3": ("aws.spot_terminate", "critical"),
    }
    assert found["h100-1"].deadline == NOW + timedelta(minutes=50)
    assert found["h100-3"].deadline == NOW + timedelta(seconds=100)


def test_hosts_that_others_made_are_known_by_their_address_and_what_is_gone_is_not_asked_about() -> None:
    ec2 = _Ec2(describe_instances=[{"Reservations": [{"Instances": [_instance(1), {**_instance(9), "PrivateIpAddress": "10.9.9.9"}]}]}])
    assert api_signals(ec2, [_host(1), _host(2)], NOW) == ()
    assert ec2.asked[0] == ("describe_instances", {"Filters": [{"Name": "private-ip-address", "Values": ["10.0.0.1", "10.0.0.2"]}]})
    assert ec2.asked[1] == ("describe_instance_status", {"InstanceIds": ["i-1"]})
    gone = _Ec2(describe_instances=[{"Reservations": []}])
    assert api_signals(gone, [_host(1, "i-1")], NOW) == ()
    assert [call for call, _ in gone.asked] == ["describe_instances"]


def test_a_node_tells_of_its_end_by_taint_condition_or_deletion() -> None:
    def told(**parts: object) -> list[tuple[str, str]]:
        node = {"metadata": {"name": "aks-1"}, **parts}
        return [(s.kind, s.severity) for s in signals_of_node(node, NOW)]

    assert told(spec={"taints": [{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]}) == [
        ("kubernetes.aws-node-termination-handler/spot-itn", "critical")
    ]
    said = {"type": "VMEventScheduled", "status": "True", "reason": "VMEventScheduled", "message": "Preempt Scheduled: Mon, 30 Nov 2026"}
    assert told(status={"conditions": [said]}) == [("kubernetes.vm_event_preempt", "critical")]
    assert told(status={"conditions": [{**said, "message": "Freeze Scheduled"}]}) == [("kubernetes.vm_event_freeze", "warning")]
    assert told(status={"conditions": [{**said, "status": "False"}]}) == []
    assert told(spec={"unschedulable": True}) == [("kubernetes.cordoned", "warning")]
    assert told(metadata={"name": "a", "deletionTimestamp": "2026-11-30T12:00:00Z"}) == [("kubernetes.deleted", "critical")]
    assert told(spec={"taints": [{"key": "sku", "value": "gpu"}]}, status={"conditions": [{"type": "Ready", "status": "False"}]}) == []


@pytest.mark.parametrize("hostile", [{}, {"metadata": {"name": 7}}, {"metadata": {"name": "a"}, "spec": {"taints": [3]}, "status": []}])
def test_a_node_of_another_shape_tells_nothing(hostile: dict[str, object]) -> None:
    assert list(signals_of_node(hostile, NOW)) == []
