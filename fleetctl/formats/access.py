"""Init, formats layer: the exact read-only rights that fleetctl needs in a cloud, to hand to security. Never a right that writes.

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
)
"""VMs and scale sets (what runs), SKUs and usages (what may run), capacity reservations (what is kept)."""

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
        "ec2:DescribeAvailabilityZones",
        "ec2:DescribeCapacityReservations",
        "ec2:DescribeInstanceStatus",
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeInstances",
        "ec2:DescribeRegions",
        "ec2:DescribeTags",
    ),
    "Groups": (
        "autoscaling:DescribeAutoScalingGroups",
        "autoscaling:DescribeAutoScalingInstances",
        "autoscaling:DescribeTags",
    ),
    "Balancers": (
        "elasticloadbalancing:DescribeListeners",
        "elasticloadbalancing:DescribeLoadBalancers",
        "elasticloadbalancing:DescribeRules",
        "elasticloadbalancing:DescribeTags",
        "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTargetHealth",
    ),
    "Quotas": (
        "servicequotas:GetAWSDefaultServiceQuota",
        "servicequotas:GetServiceQuota",
        "servicequotas:ListAWSDefaultServiceQuotas",
        "servicequotas:ListServiceQuotas",
    ),
}
"""By statement. None of these actions can be narrowed to a resource in a useful way for an inventory, hence Resource "*"."""

AWS_POLICY: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Sid": f"Read{name}", "Effect": "Allow", "Action": list(actions), "Resource": "*"} for name, actions in AWS_ACTIONS.items()
    ],
}
