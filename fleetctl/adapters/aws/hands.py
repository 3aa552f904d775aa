"""Migrate, adapters layer: the Auto Scaling groups that size a pool, their minimum, their owners' tags. Never changes a desired size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fleetctl.adapters.aws.client import translated
from fleetctl.domain.holds import Standing
from fleetctl.domain.ids import CellId, PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.tags import short

POOL_TAG = "fleetctl-pool"
SOURCE = "aws"
_MARKS: Mapping[str, str] = {
    "aws:cloudformation:stack-name": "CloudFormation",
    "eks:nodegroup-name": "EKS node group",
    "k8s.io/cluster-autoscaler/enabled": "Cluster Autoscaler",
}
"""Tags that AWS's own tools, EKS and the Cluster Autoscaler put on a group. Source: their documentation, read 2026-11-30."""


class AsgHands:
    """Groups of one pool: the named one, else those tagged with the pool or that hold its hosts.

    Args:
        client: makes the autoscaling client of the pool's region, whose calls end within 2 s; ids: of the pool's instances.
    """

    def __init__(self, client: Callable[[], Any], pool: PoolId, name: str = "", ids: Callable[[], Sequence[str]] = tuple) -> None:
        self._client, self._pool, self._name, self._ids = client, pool, name, ids

    def find(self) -> tuple[Owner | Gap, ...]:
        """List the groups and whose they are; a scheduled action that will lower a minimum is a Gap in what we can hold."""
        with translated(f"the groups of pool {self._pool}"):
            api = self._client()
            groups = self._groups(api)
            if not groups and self._name:
                return (Gap(scope=f"pool {self._pool}", reason=f"there is no Auto Scaling group {self._name}", source=SOURCE),)
            found: list[Owner | Gap] = []
            for g in groups:
                found.extend((self._owner(g), *self._marks(g), *self._scheduled(api, g)))
            return tuple(found)

    def standing(self, ref: str) -> Standing:
        """Return the group's minimum; AWS does not tell here who set it."""
        with translated(f"group {ref}"):
            found = self._client().describe_auto_scaling_groups(AutoScalingGroupNames=[ref])["AutoScalingGroups"]
            return Standing(minimum=int(found[0]["MinSize"]) if found else None)

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Set the group's minimum that is still `was`; read just before, as AWS compares nothing."""
        if self.standing(ref).minimum != was:
            return False
        with translated(f"the minimum of group {ref}"):
            self._client().update_auto_scaling_group(AutoScalingGroupName=ref, MinSize=to)
        return True

    def _groups(self, api: Any) -> list[Mapping[str, Any]]:
        if self._name:
            return list(api.describe_auto_scaling_groups(AutoScalingGroupNames=[self._name])["AutoScalingGroups"])
        tagged = api.describe_auto_scaling_groups(Filters=[{"Name": f"tag:{POOL_TAG}", "Values": [self._pool]}])["AutoScalingGroups"]
        names = {g["AutoScalingGroupName"] for g in tagged}
        ids = list(self._ids())[:50]
        inside = api.describe_auto_scaling_instances(InstanceIds=ids)["AutoScalingInstances"] if ids else []
        more = sorted({i["AutoScalingGroupName"] for i in inside} - names)
        found = api.describe_auto_scaling_groups(AutoScalingGroupNames=more)["AutoScalingGroups"] if more else []
        return [*tagged, *found]

    def _owner(self, g: Mapping[str, Any]) -> Owner:
        name = str(g["AutoScalingGroupName"])
        return Owner(
            name=f"AWS Auto Scaling group {short(name)}",
            kind="autoscaler",
            pool=self._pool,
            ref=name,
            minimum=int(g["MinSize"]),
            maximum=int(g["MaxSize"]),
            size=int(g["DesiredCapacity"]),
        )

    def _marks(self, g: Mapping[str, Any]) -> Iterable[Owner]:
        tags = {str(t.get("Key", "")): str(t.get("Value", "")) for t in g.get("Tags", ())}
        for name in owner_names(tags):
            yield Owner(name=name, kind="gitops", pool=self._pool)

    def _scheduled(self, api: Any, g: Mapping[str, Any]) -> Iterable[Gap]:
        name = str(g["AutoScalingGroupName"])
        for a in api.describe_scheduled_actions(AutoScalingGroupName=name)["ScheduledUpdateGroupActions"]:
            if isinstance(a.get("MinSize"), int) and a["MinSize"] < int(g["DesiredCapacity"]):
                when = a.get("Recurrence") or a.get("StartTime") or "a time of its own"
                text = (
                    f"scheduled action {short(str(a.get('ScheduledActionName')))} sets its minimum to {a['MinSize']} at {short(str(when))}"
                )
                yield Gap(scope=f"pool {self._pool}", reason=f"{text}: suspend it while a cell moves", source=SOURCE)


def owner_names(tags: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tools that tags name as the owner of a thing: AWS's own, and Terraform where people say so in a tag."""
    found = [f"{tool} {short(tags[key])}".strip() for key, tool in _MARKS.items() if key in tags]
    for key, value in sorted(tags.items()):
        word = "".join(c for c in key.casefold() if c.isalnum())
        if word in ("managedby", "provisionedby", "createdby") or word.startswith("terraform") or word == "iac":
            said = value if "terraform" not in word else f"Terraform {value}"
            if any(t in said.casefold() for t in ("terraform", "opentofu", "pulumi", "argo", "flux", "crossplane", "ansible")):
                found.append(short(said))
    return tuple(dict.fromkeys(found))


class RuleMarks:
    """Whose a load balancer's rule or listener is, by its tags; AWS does not tell here who wrote it last.

    Args:
        client: makes the elbv2 client of its region; arn: of the rule or listener.
    """

    def __init__(self, client: Callable[[], Any], c: CellId, arn: str) -> None:
        self._client, self._cell, self._arn = client, c, arn

    def find(self) -> tuple[Owner | Gap, ...]:
        """Return the owners that its tags name."""
        with translated(f"the tags of the route of {self._cell}"):
            found = self._client().describe_tags(ResourceArns=[self._arn])["TagDescriptions"]
        tags = {str(t["Key"]): str(t.get("Value", "")) for one in found for t in one["Tags"]}
        return tuple(Owner(name=name, kind="gitops", pool=PoolId(""), cell=self._cell) for name in owner_names(tags))

    def writer(self) -> str:
        """Return that nobody can tell: CloudTrail could, and no right to it is asked for."""
        return ""
