"""Provision: which reserved places of AWS any machine can take, and which only one that names their reservation."""

from __future__ import annotations

from typing import Any

from fleetctl.adapters.aws.capacity import _reserved


class _Ec2:
    """Answers one page."""

    def __init__(self, rows: list[dict[str, object]]) -> None:
        self.rows = rows

    def get_paginator(self, name: str) -> Any:
        assert name == "describe_capacity_reservations"
        return self

    def paginate(self, **_: object) -> list[dict[str, object]]:
        return [{"CapacityReservations": self.rows}]


def _row(id_: str, free: int, match: str = "open", **more: object) -> dict[str, object]:
    return {
        "CapacityReservationId": id_,
        "AvailabilityZone": "us-east-1a",
        "AvailableInstanceCount": free,
        "InstanceMatchCriteria": match,
        **more,
    }


def test_targeted_reservations_and_blocks_are_there_only_for_who_names_them() -> None:
    rows = [
        _row("cr-open", 2),
        _row("cr-aimed", 4, "targeted"),
        _row("cr-block", 8, "targeted", ReservationType="capacity-block"),
        _row("cr-windows", 16, InstancePlatform="Windows"),
        _row("cr-alone", 32, Tenancy="dedicated"),
        _row("cr-full", 0),
    ]
    free, named = _reserved(_Ec2(rows), "p5.48xlarge")
    assert free == (("us-east-1a", 2),)
    assert [(n.id, n.free) for n in named] == [("cr-aimed", 4), ("cr-block", 8), ("cr-open", 2)]
