"""Migrate, adapters layer: what a cluster says of the end of its nodes (conditions, taints) as signals. Never writes to a cluster.

AKS, node termination handlers, Karpenter and the cluster autoscaler each mark a node before it goes; none of them writes a deadline.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from fleetctl.adapters.kubernetes.client import ClusterAccess, ClusterApi
from fleetctl.domain.people import Signal
from fleetctl.domain.units import Instant

_TAINTS: Mapping[str, Literal["warning", "critical"]] = {
    "aws-node-termination-handler/spot-itn": "critical",
    "aws-node-termination-handler/scheduled-maintenance": "critical",
    "aws-node-termination-handler/asg-lifecycle-termination": "critical",
    "aws-node-termination-handler/rebalance-recommendation": "warning",
    "remediator.aks.microsoft.com/unschedulable": "critical",
    "remediator.kubernetes.azure.com/unschedulable": "critical",
    "karpenter.sh/disrupted": "critical",
    "karpenter.sh/disruption": "critical",
    "ToBeDeletedByClusterAutoscaler": "critical",
    "DeletionCandidateOfClusterAutoscaler": "warning",
    "cloud.google.com/impending-node-termination": "critical",
    "node.kubernetes.io/out-of-service": "critical",
}
"""Source: Microsoft Learn "Node auto-drain" (AKS); aws/aws-node-termination-handler; kubernetes-sigs/karpenter; kubernetes/autoscaler;
read 2026-11-30."""
_EVENTS: Mapping[str, Literal["warning", "critical"]] = {
    "preempt": "critical",
    "terminate": "critical",
    "redeploy": "critical",
    "reboot": "warning",
    "freeze": "warning",
}
_CONDITION = "VMEventScheduled"
"""AKS's node condition for Azure's scheduled events; its reason or message names the kind. Source: Microsoft Learn "Node auto-drain"."""


def node_signals(access: ClusterAccess, selector: str, now: Instant) -> tuple[Signal, ...]:
    """Return what the nodes of a label selector say of their end.

    Raises:
        ToolMissing, CredentialsMissing, InventoryFailed: as `ClusterApi`; who asks makes silence of them.
    """
    api = ClusterApi(access)
    return tuple(s for node in api.items(api.core.list_node, "nodes", label_selector=selector) for s in signals_of_node(node, now))


def signals_of_node(node: Mapping[str, Any], now: Instant) -> Iterator[Signal]:
    """Yield the signals of one node as the API gave it."""
    metadata, spec, status = (_at(node, key) for key in ("metadata", "spec", "status"))
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        return
    marks: list[tuple[str, Literal["warning", "critical"]]] = []
    if metadata.get("deletionTimestamp"):
        marks.append(("deleted", "critical"))
    for taint in _list(spec, "taints"):
        key = taint.get("key")
        if isinstance(key, str) and key in _TAINTS:
            marks.append((key, _TAINTS[key]))
    for condition in _list(status, "conditions"):
        if condition.get("type") == _CONDITION and condition.get("status") == "True":
            said = f"{condition.get('reason', '')} {condition.get('message', '')}".lower()
            kind = next((k for k in _EVENTS if k in said), "")
            marks.append((f"vm_event_{kind or 'scheduled'}", _EVENTS.get(kind, "critical")))
    if spec.get("unschedulable") is True and not marks:
        marks.append(("cordoned", "warning"))
    for kind, severity in marks:
        yield Signal(subject=name, kind=f"kubernetes.{kind}", severity=severity, seen_at=now, source="kubernetes")


def _at(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = item.get(key)
    return found if isinstance(found, dict) else {}


def _list(item: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = item.get(key)
    return [i for i in found if isinstance(i, dict)] if isinstance(found, list) else []
