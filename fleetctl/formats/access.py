"""Init, formats layer: the exact read-only rights that fleetctl needs in a cloud or cluster, for security. Never a right that writes.

Each right is named; none is a wildcard. A test refuses any that does not read.
"""

from __future__ import annotations

from typing import Any

AZURE_ACTIONS = (
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/capacityReservationGroups/read",
    "Microsoft.Compute/capacityReservationGroups/capacityReservations/read",
)
"""VMs and scale sets (what runs), SKUs and usages (what may run), capacity reservations (what is kept; the members for capacity alone)."""

AZURE_ROLE: dict[str, Any] = {
    "Name": "fleetctl reader",
    "IsCustom": True,
    "Description": "What fleetctl reads to take an inventory and to check capacity. It changes nothing.",
    "Actions": list(AZURE_ACTIONS),
    "NotActions": [],
    "DataActions": [],
    "NotDataActions": [],
    "AssignableScopes": ["/subscriptions/00000000-0000-0000-0000-000000000000"],
}

AWS_ACTIONS: dict[str, tuple[str, ...]] = {
    "Instances": (
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeRegions",
    ),
    "Groups": ("autoscaling:DescribeAutoScalingGroups",),
    "Balancers": (
        "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTargetHealth",
    ),
    "Quotas": ("servicequotas:ListServiceQuotas",),
    "Notices": ("ec2:DescribeInstanceStatus", "ec2:DescribeSpotInstanceRequests"),
    "Capacity": ("ec2:DescribeInstanceTypeOfferings", "servicequotas:GetServiceQuota"),
}
"""By statement. None of these actions can be narrowed to a resource in a useful way for an inventory, hence Resource "*"."""

AWS_POLICY: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Sid": f"Read{name}", "Effect": "Allow", "Action": list(actions), "Resource": "*"} for name, actions in AWS_ACTIONS.items()
    ],
}

KUBERNETES_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("", ("nodes", "pods")),
    ("apps", ("deployments", "statefulsets")),
    ("autoscaling", ("horizontalpodautoscalers",)),
    ("keda.sh", ("scaledobjects",)),
    ("serving.kserve.io", ("inferenceservices",)),
)
"""API groups and the kinds that are listed in them; nothing is watched and no Secret or ConfigMap is read."""


def kubernetes_role() -> list[dict[str, Any]]:
    """Return the cluster role and its binding to the service account that fleetctl runs as."""
    api, name = "rbac.authorization.k8s.io", "fleetctl-reader"
    rules = [{"apiGroups": [group], "resources": list(kinds), "verbs": ["list"]} for group, kinds in KUBERNETES_RULES]
    subject = {"kind": "ServiceAccount", "name": "fleetctl", "namespace": "fleetctl"}
    role = {"apiGroup": api, "kind": "ClusterRole", "name": name}
    return [
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {"apiVersion": f"{api}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    ]
