"""The read-only rights that `fleetctl init` writes: those of the calls that inventory, capacity and notices make, and no other.

The calls are found in the adapters' text, so that a new one without its right (or a right that nothing needs any more) fails here.
"""

from __future__ import annotations

import re
from pathlib import Path

from fleetctl.formats.access import AWS_ACTIONS, AZURE_ACTIONS, KUBERNETES_RULES

ADAPTERS = Path(__file__).resolve().parents[2] / "fleetctl/adapters"


def text_of(cloud: str, *modules: str) -> str:
    return "\n".join((ADAPTERS / cloud / f"{m}.py").read_text(encoding="utf-8") for m in modules)


def test_aws_rights_are_those_of_its_calls() -> None:
    text = text_of("aws", "discovery", "capacity", "notices")
    calls = set(re.findall(r'(?:get_paginator\(\s*|_pages\(ec2, )"(\w+)"', text)) | set(
        re.findall(r"\.((?:describe|list|get)_(?!paginator)\w+)\(", text)
    )
    assert len(calls) >= 9
    named = {action.partition(":")[2] for actions in AWS_ACTIONS.values() for action in actions}
    assert named == {"".join(word.title() for word in call.split("_")) for call in calls}
    assert all(action.partition(":")[2].startswith(("Describe", "List", "Get")) for actions in AWS_ACTIONS.values() for action in actions)


AZURE_CALLS = {
    "resource_skus.list": ("skus",),
    "usage.list": ("locations/usages",),
    "virtual_machine_scale_sets.list_all": ("virtualMachineScaleSets",),
    "virtual_machine_scale_set_vms.list": (
        "virtualMachineScaleSets/virtualMachines",
        "virtualMachineScaleSets/virtualMachines/instanceView",
    ),
    "capacity_reservation_groups.list_by_subscription": ("capacityReservationGroups",),
    "capacity_reservations.list_by_capacity_reservation_group": ("capacityReservationGroups/capacityReservations",),
    "virtualMachines": ("virtualMachines", "virtualMachines/instanceView"),
    "locations/{region}/virtualMachines": ("virtualMachines",),
}
"""Operations by the client's method, or by the path that is asked. Source: Microsoft.Compute's list of resource provider operations, which
has none of its own for VMs by location."""


def test_azure_rights_are_those_of_its_calls() -> None:
    text = text_of("azure", "discovery", "capacity")
    calls = set(re.findall(r"(?:compute(?:\(\))?|_azure)\.(\w+\.list\w*)\(", text)) | set(re.findall(r'\.pages\(f?"([^"]+)"', text))
    assert calls == set(AZURE_CALLS)
    assert set(AZURE_ACTIONS) == {f"Microsoft.Compute/{kind}/read" for call in calls for kind in AZURE_CALLS[call]}


KINDS = {
    "list_node": ("", "nodes"),
    "list_pod_for_all_namespaces": ("", "pods"),
    "list_deployment_for_all_namespaces": ("apps", "deployments"),
    "list_stateful_set_for_all_namespaces": ("apps", "statefulsets"),
    "list_horizontal_pod_autoscaler_for_all_namespaces": ("autoscaling", "horizontalpodautoscalers"),
}


def test_kubernetes_rights_are_those_of_its_calls() -> None:
    text = text_of("kubernetes", "discovery")
    calls = set(re.findall(r"api\.(?:core|apps|scaling)\.(\w+)", text))
    assert calls == set(KINDS)
    custom = set(re.findall(r'custom_items\("([^"]+)", "[^"]+", "([^"]+)"\)', text))
    assert custom
    assert {(group, kind) for group, kinds in KUBERNETES_RULES for kind in kinds} == {KINDS[c] for c in calls} | custom
