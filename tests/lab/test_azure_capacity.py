"""Provision: the capacity source and the leftovers of Azure, by azure-mgmt-compute itself against the lab double over TLS."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.azure.capacity import AzureCapacity
from fleetctl.adapters.azure.capacity_client import AzureConnection, FixedToken, connect
from fleetctl.adapters.azure.client import AzureAccess
from fleetctl.adapters.azure.discovery import AzureDiscovery
from fleetctl.adapters.azure.leftovers import AzureLeftovers
from fleetctl.adapters.azure.notices import signals_of
from fleetctl.domain.capacity import NamedPlaces
from fleetctl.domain.people import Facts
from fleetctl.errors import CapacityUnavailable, CredentialsMissing
from fleetctl.planning.capacity import usable
from tests.doubles.arm import ArmDouble
from tests.doubles.arm_facts import SUBSCRIPTION

pytestmark = [pytest.mark.lab]
SKU = "Standard_ND96isr_MI300X_v5"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg"
TAG = "f1-mi300x-a-1"


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ArmDouble]:
    with ArmDouble(tmp_path) as double:
        yield double


def _client(arm: ArmDouble) -> Any:
    return connect(AzureConnection(subscription=SUBSCRIPTION, endpoint=arm.url, ca=str(arm.certificate)), FixedToken())


def _put(arm: ArmDouble, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{arm.url}{path}", method="PUT", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=str(arm.certificate))) as answer:
        made: dict[str, Any] = json.loads(answer.read())
        return made


def _machine(arm: ArmDouble, name: str, tag: str = TAG) -> str:
    """Make a machine with a card, as Terraform would; return its path."""
    tags = {"fleetctl-intent": tag, "fleetctl-pool": "mi300x-a"}
    _put(arm, GROUP, {"location": "eastus2"})
    card = f"{GROUP}/providers/Microsoft.Network/networkInterfaces/{name}-nic"
    _put(arm, card, {"location": "eastus2", "tags": tags})
    path = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"
    properties = {"hardwareProfile": {"vmSize": SKU}, "networkProfile": {"networkInterfaces": [{"id": card}]}}
    _put(arm, path, {"location": "eastus2", "tags": tags, "properties": properties})
    return path


def test_a_reading_holds_zones_vcpus_and_the_buckets_by_azure_s_own_names(arm: ArmDouble) -> None:
    arm.world.limits[("eastus2", "standardNDISv5MI300XFamily")] = 192
    _machine(arm, "busy")
    reading = AzureCapacity(lambda: _client(arm), Clock()).read(SKU, "eastus2")
    assert (reading.offered, reading.zones, reading.vcpus, reading.gaps) == (True, ("1", "2", "3"), 96, ())
    rows = {q.name: (q.limit, q.used, q.binds) for q in reading.quotas}
    assert rows["standardNDISv5MI300XFamily"] == (192, 96, "regular")
    assert rows["cores"][2] == "regular"
    assert rows["lowPriorityCores"][2] == "spot"


def test_a_family_is_found_though_usages_write_it_otherwise(arm: ArmDouble) -> None:
    reading = AzureCapacity(lambda: _client(arm), Clock()).read("Standard_NC80adis_H100_v5", "eastus2")
    assert "Standard NCadsH100v5Family" in {q.name for q in reading.quotas}


def test_a_family_that_the_usages_lack_is_a_gap_and_never_passes_for_enough(arm: ArmDouble) -> None:
    clock = Clock()
    source = AzureCapacity(lambda: _client(arm), clock)
    source._usages["eastus2"] = (clock.at, {"cores": ("cores", 10_000, 0)})
    reading = source.read(SKU, "eastus2")
    assert "tells none of the family standardNDISv5MI300XFamily" in reading.gaps[0]


def test_restrictions_close_a_region_or_a_zone(arm: ArmDouble) -> None:
    arm.world.restricted[(SKU, "eastus2")] = ("NotAvailableForSubscription", ())
    arm.world.restricted[(SKU, "westus3")] = ("NotAvailableForSubscription", ("2",))
    source = AzureCapacity(lambda: _client(arm), Clock())
    assert source.read(SKU, "eastus2").closed == "NotAvailableForSubscription"
    assert (source.read(SKU, "westus3").closed, source.read(SKU, "westus3").closed_zones) == ("", ("2",))
    assert source.read(SKU, "northpole").offered is False
    assert source.read("Standard_ND96isr_MI300X_v6", "eastus2").offered is False


def test_reserved_places_are_counted_without_those_in_use(arm: ArmDouble) -> None:
    _put(arm, GROUP, {"location": "eastus2"})
    group = f"{GROUP}/providers/Microsoft.Compute/capacityReservationGroups/g"
    _put(arm, group, {"location": "eastus2"})
    used = {"properties": {"virtualMachinesAssociated": [{"id": "/x"}]}}
    _put(arm, f"{group}/capacityReservations/r", {"location": "eastus2", "zones": ["2"], "sku": {"name": SKU, "capacity": 3}, **used})
    reading = AzureCapacity(lambda: _client(arm), Clock()).read(SKU, "eastus2")
    assert reading.reserved == (), "a VM takes no place of a group that it does not name"
    assert reading.named == (NamedPlaces(id=group.lower(), zone="2", free=2),)
    assert usable(reading, "p", [group]).reserved == (("2", 2),)


def test_a_region_is_read_once_in_thirty_seconds(arm: ArmDouble) -> None:
    clock = Clock()
    source = AzureCapacity(lambda: _client(arm), clock)
    for _ in range(3):
        source.read(SKU, "eastus2")
    once = arm.requests("GET", "/skus")
    clock.at += timedelta(seconds=31)
    source.read(SKU, "eastus2")
    assert arm.requests("GET", "/skus") == 2 * once


def test_what_cannot_be_read_is_a_gap_and_never_a_no(arm: ArmDouble) -> None:
    arm.world.deny = 403
    reading = AzureCapacity(lambda: _client(arm), Clock()).read(SKU, "eastus2")
    assert reading.offered
    assert "Azure says no" in reading.gaps[0]


def test_a_failed_machine_its_card_and_its_disk_are_found_by_tag_and_removed_in_order(arm: ArmDouble) -> None:
    arm.refuse("AllocationFailed", how="polling", times=1)
    path = _machine(arm, "mi300x-a-1")
    _machine(arm, "theirs", tag="somebody-else")
    operation = next(iter(arm.world.operations))
    with urllib.request.urlopen(
        f"{arm.url}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Lab/operations/{operation}",
        context=ssl.create_default_context(cafile=str(arm.certificate)),
    ) as answer:
        assert json.loads(answer.read())["error"]["code"] == "AllocationFailed"
    leftovers = AzureLeftovers(lambda: _client(arm), SUBSCRIPTION)
    found = leftovers.find(TAG)
    assert sorted((f.kind, f.state) for f in found) == [("card", "Succeeded"), ("disk", "attached"), ("machine", "Failed")]
    assert {f.pool for f in found} == {"mi300x-a"}
    leftovers.remove(next(f for f in found if f.kind == "machine"))
    assert sorted(f.kind for f in leftovers.find(TAG)) == ["card", "disk"], "a disk whose machine is gone must still be found"
    for kind in ("card", "disk"):
        leftovers.remove(next(f for f in found if f.kind == kind))
    assert leftovers.find(TAG) == ()
    assert path.lower() not in arm.world.resources
    assert "theirs" in arm.machines()
    leftovers.remove(found[0])


def test_a_card_in_use_is_not_removed_and_said(arm: ArmDouble) -> None:
    _machine(arm, "mi300x-a-1")
    leftovers = AzureLeftovers(lambda: _client(arm), SUBSCRIPTION)
    card = next(f for f in leftovers.find(TAG) if f.kind == "card")
    with pytest.raises(CapacityUnavailable) as caught:
        leftovers.remove(card)
    assert caught.value.code == "capacity.unreachable"


def test_a_group_in_which_anything_of_others_stands_is_never_deleted(arm: ArmDouble) -> None:
    """Azure deletes all that is in a group with it."""
    _machine(arm, "theirs", tag="somebody-else")
    _put(arm, GROUP, {"location": "eastus2", "tags": {"fleetctl-intent": TAG}})
    leftovers = AzureLeftovers(lambda: _client(arm), SUBSCRIPTION)
    (group,) = leftovers.find(TAG)
    with pytest.raises(CapacityUnavailable) as caught:
        leftovers.remove(group)
    assert caught.value.code == "capacity.leftover"
    assert "theirs" in caught.value.message
    assert "theirs" in arm.machines()
    for one in sorted(leftovers.find("somebody-else"), key=lambda o: ("machine", "card", "disk").index(o.kind)):
        leftovers.remove(one)
    leftovers.remove(group)
    leftovers.remove(group)
    assert leftovers.find(TAG) == ()


def test_a_network_is_taken_apart_in_the_order_in_which_azure_lets_it_go(arm: ArmDouble) -> None:
    tags = {"fleetctl-intent": TAG}
    _put(arm, GROUP, {"location": "eastus2", "tags": tags})
    for kind in ("networkSecurityGroups", "publicIPAddresses", "natGateways", "virtualNetworks"):
        _put(arm, f"{GROUP}/providers/Microsoft.Network/{kind}/a", {"location": "eastus2", "tags": tags})
    _put(arm, f"{GROUP}/providers/Microsoft.Compute/availabilitySets/a", {"location": "eastus2", "tags": tags})
    found = sorted(AzureLeftovers(lambda: _client(arm), SUBSCRIPTION).find(TAG), key=lambda o: o.rank)
    kinds = [o.id.split("/")[-2] for o in found]
    assert kinds == ["availabilitySets", "virtualNetworks", "natGateways", "publicIPAddresses", "networkSecurityGroups", "resourceGroups"]


def test_refused_credentials_are_told_as_such(arm: ArmDouble) -> None:
    arm.world.deny = 403
    with pytest.raises(CredentialsMissing):
        AzureLeftovers(lambda: _client(arm), SUBSCRIPTION).find(TAG)


def test_an_eviction_s_notice_becomes_a_signal_with_its_deadline(arm: ArmDouble) -> None:
    _machine(arm, "mi300x-a-1")
    _client(arm).virtual_machines.simulate_eviction("rg", "mi300x-a-1")
    with urllib.request.urlopen(
        f"{arm.url}/metadata/scheduledevents", context=ssl.create_default_context(cafile=str(arm.certificate))
    ) as answer:
        document = json.loads(answer.read())
    now = datetime.now(UTC)
    (signal,) = signals_of(document, {"mi300x-a-1": "mi300x-a-1"}, now)
    assert (signal.subject, signal.kind, signal.severity) == ("mi300x-a-1", "azure.preempt", "critical")
    assert signal.deadline is not None
    assert timedelta(0) < signal.deadline - now < timedelta(seconds=31)
    assert signals_of(document, {}, now) == ()
    assert signals_of({"Events": "x"}, {}, now) == ()


def test_a_machine_that_was_made_shows_up_in_the_inventory(arm: ArmDouble) -> None:
    _machine(arm, "mi300x-a-1")
    access = AzureAccess(subscriptions=(SUBSCRIPTION,), endpoint=arm.url, ca_file=str(arm.certificate), token=lambda: "lab-double")
    found = list(AzureDiscovery("lab", access, Clock(), regions=("eastus2",)).scan(f"{SUBSCRIPTION}/eastus2"))
    machines = [f for f in found if isinstance(f, Facts) and f.values.get("name") == "mi300x-a-1"]
    assert len(machines) == 1, found
    assert SKU in machines[0].values.values()
