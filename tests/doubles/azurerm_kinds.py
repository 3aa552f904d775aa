"""Provision, tests: how the lab double of azurerm turns arguments into ARM bodies and back. Never talks to anything."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tf.types import Unknown

from tests.doubles.arm_facts import SUBSCRIPTION

_SUB = f"/subscriptions/{SUBSCRIPTION}"
REPLACES = frozenset(
    {
        "admin_username",
        "availability_set_id",
        "capacity_reservation_group_id",
        "computer_name",
        "eviction_policy",
        "location",
        "name",
        "nat_gateway_id",
        "network_interface_ids",
        "network_security_group_id",
        "network_security_group_name",
        "priority",
        "proximity_placement_group_id",
        "public_ip_address_id",
        "resource_group_name",
        "source_image_id",
        "subnet_id",
        "virtual_machine_scale_set_id",
        "virtual_network_name",
        "zone",
        "zones",
    }
)
"""Arguments whose change makes the provider replace the resource; a choice of the double, close to azurerm's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One resource type.

    Args:
        arm: the ARM type, or "" for the group itself; parent: the argument that holds the parent, for children.
    """

    name: str
    arm: str
    title: str
    parent: str = ""
    links: tuple[str, ...] = ()

    def path(self, values: dict[str, Any]) -> str:
        """Return the resource's id."""
        if self.links:
            number = hashlib.sha256("|".join(str(values[a]).lower() for a in self.links).encode()).hexdigest()[:16]
            return f"{values[self.links[0]]}/{self.arm}/{number}"
        group = f"{_SUB}/resourceGroups/{values.get('resource_group_name') or values['name']}"
        if not self.arm:
            return group
        if self.parent.endswith("_id"):
            return f"{values[self.parent]}/{self.arm}/{values['name']}"
        namespace, _, rest = self.arm.partition("/")
        if self.parent:
            outer, inner = rest.split("/")
            return f"{group}/providers/{namespace}/{outer}/{values[self.parent]}/{inner}/{values['name']}"
        return f"{group}/providers/{self.arm}/{values['name']}"


KINDS = (
    Kind(name="resource_group", arm="", title="Resource Group"),
    Kind(name="virtual_network", arm="Microsoft.Network/virtualNetworks", title="Virtual Network"),
    Kind(name="subnet", arm="Microsoft.Network/virtualNetworks/subnets", title="Subnet", parent="virtual_network_name"),
    Kind(name="network_security_group", arm="Microsoft.Network/networkSecurityGroups", title="Network Security Group"),
    Kind(
        name="network_security_rule",
        arm="Microsoft.Network/networkSecurityGroups/securityRules",
        title="Security Rule",
        parent="network_security_group_name",
    ),
    Kind(name="public_ip", arm="Microsoft.Network/publicIPAddresses", title="Public IP Address"),
    Kind(name="nat_gateway", arm="Microsoft.Network/natGateways", title="NAT Gateway"),
    Kind(name="network_interface", arm="Microsoft.Network/networkInterfaces", title="Network Interface"),
    Kind(name="linux_virtual_machine", arm="Microsoft.Compute/virtualMachines", title="Linux Virtual Machine"),
    Kind(name="orchestrated_virtual_machine_scale_set", arm="Microsoft.Compute/virtualMachineScaleSets", title="Scale Set"),
    Kind(name="proximity_placement_group", arm="Microsoft.Compute/proximityPlacementGroups", title="Proximity Placement Group"),
    Kind(name="availability_set", arm="Microsoft.Compute/availabilitySets", title="Availability Set"),
    Kind(name="capacity_reservation_group", arm="Microsoft.Compute/capacityReservationGroups", title="Capacity Reservation Group"),
    Kind(name="capacity_reservation", arm="capacityReservations", title="Capacity Reservation", parent="capacity_reservation_group_id"),
    Kind(name="user_assigned_identity", arm="Microsoft.ManagedIdentity/userAssignedIdentities", title="User Assigned Identity"),
    Kind(
        name="subnet_network_security_group_association",
        arm="subnetGroups",
        title="Association",
        links=("subnet_id", "network_security_group_id"),
    ),
    Kind(name="subnet_nat_gateway_association", arm="subnetGateways", title="Association", links=("subnet_id", "nat_gateway_id")),
    Kind(
        name="nat_gateway_public_ip_association",
        arm="gatewayAddresses",
        title="Association",
        links=("nat_gateway_id", "public_ip_address_id"),
    ),
)


def body_of(kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    """Return the ARM body: the real shape for machines, cards and what the inventory reads; the rest keeps its arguments as they are."""
    kept = {k: v for k, v in values.items() if v is not Unknown}
    body: dict[str, Any] = {"location": values.get("location"), "tags": values.get("tags") or {}, "properties": {}, "x-arguments": kept}
    if kind.name == "linux_virtual_machine":
        return {**body, **_machine(values)}
    if kind.name == "network_interface":
        first = (values["ip_configuration"] or [{}])[0]
        body["properties"]["ipConfigurations"] = [{"name": first.get("name"), "properties": {"subnet": {"id": first.get("subnet_id")}}}]
    if kind.name == "capacity_reservation":
        body["sku"] = (values["sku"] or [{}])[0]
    zones = [values["zone"]] if values.get("zone") else values.get("zones")
    return {**body, "zones": zones} if zones else body


def _machine(values: dict[str, Any]) -> dict[str, Any]:
    disk = (values["os_disk"] or [{}])[0]
    os_disk: dict[str, Any] = {"caching": disk.get("caching"), "createOption": "FromImage"}
    if disk.get("diff_disk_settings"):
        os_disk["diffDiskSettings"] = {"option": "Local", "placement": disk["diff_disk_settings"][0].get("placement")}
    image = (values.get("source_image_reference") or [{}])[0]
    properties: dict[str, Any] = {
        "hardwareProfile": {"vmSize": values["size"]},
        "priority": values.get("priority") or "Regular",
        "osProfile": {"computerName": _known(values.get("computer_name")) or values["name"], "adminUsername": values.get("admin_username")},
        "networkProfile": {"networkInterfaces": [{"id": i} for i in values["network_interface_ids"]]},
        "storageProfile": {"osDisk": os_disk, "imageReference": image or {"id": values.get("source_image_id")}},
    }
    if values.get("eviction_policy"):
        properties["evictionPolicy"] = values["eviction_policy"]
    if values.get("capacity_reservation_group_id"):
        properties["capacityReservation"] = {"capacityReservationGroup": {"id": values["capacity_reservation_group_id"]}}
    made: dict[str, Any] = {"properties": properties}
    return {**made, "zones": [values["zone"]]} if values.get("zone") else made


def _known(value: Any) -> Any:
    return None if value is Unknown else value


def computed_of(kind: Kind, planned: dict[str, Any], made: dict[str, Any], shape: Any) -> dict[str, Any]:
    """Return the planned values with what only the cloud knows filled in."""
    state = {k: (None if v is Unknown else v) for k, v in planned.items()}
    state["id"] = made["id"]
    number = int(hashlib.sha256(made["id"].lower().encode()).hexdigest()[:4], 16)
    filled: dict[str, Any] = {}
    if kind.name == "network_interface":
        address = f"10.40.{number // 256}.{number % 250 + 4}"
        filled = {"private_ip_address": address, "private_ip_addresses": [address], "mac_address": "00-0D-3A-00-00-01"}
    elif kind.name == "linux_virtual_machine":
        address = f"10.40.{number // 256}.{number % 250 + 4}"
        filled = {"private_ip_address": address, "private_ip_addresses": [address], "virtual_machine_id": made["properties"].get("vmId")}
        filled["computer_name"] = planned["name"]
    elif kind.name == "public_ip":
        filled = {"ip_address": "203.0.113.7"}
    for attribute in shape.attributes:
        if planned.get(attribute.name) is Unknown and attribute.name in filled:
            state[attribute.name] = filled[attribute.name]
    return state


def drifted(kind: Kind, current: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the state as the cloud has it now: tags, and a machine's size."""
    state = dict(current)
    if "tags" in current and (current["tags"] or found.get("tags")):
        state["tags"] = found.get("tags") or None
    if kind.name == "linux_virtual_machine":
        state["size"] = found["properties"]["hardwareProfile"]["vmSize"]
    return state
