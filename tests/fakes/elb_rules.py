"""A double of one load balancer's rule as AWS keeps it: what it refuses, its tags, and its cookies. In memory; nothing is sent anywhere.

Source: AWS, target groups and forward actions of Application Load Balancers; what it refuses of sticky target groups is quoted in
kubernetes-sigs/aws-load-balancer-controller#2734.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

from botocore.exceptions import ClientError

from fleetctl.adapters.routers.alb.pace import Pace
from fleetctl.domain.ids import CellId

ARN = "arn:aws:elasticloadbalancing:us-east-1:1:listener-rule/app/edge/1/2/3"


def group(name: str) -> str:
    """Return the ARN of a target group."""
    return f"arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/{name}/0123456789abcdef"


class RuleClient:
    """Stands in for boto3's client of elbv2.

    Args:
        cell: its two groups are CELL-baseline and CELL-canary, everything on the first.
    """

    def __init__(self, cell: CellId) -> None:
        self.baseline, self.canary = group(f"{cell}-baseline"), group(f"{cell}-canary")
        groups = [{"TargetGroupArn": arn, "Weight": weight} for arn, weight in ((self.baseline, 999), (self.canary, 0))]
        self.actions: list[dict[str, Any]] = [{"Type": "forward", "ForwardConfig": {"TargetGroups": groups}}]
        self.tags: dict[str, str] = {}
        self.sticky_groups: set[str] = set()
        self.written: list[list[dict[str, Any]]] = []
        self.fails: dict[str, Callable[[], None]] = {}
        """Called instead of a call of that name, or before it where it returns."""
        self.stale = 0
        """So many looks at the rule show what stood before the newest change."""
        self._before: list[dict[str, Any]] = []
        self._cookies: dict[str, str] = {}

    def describe_rules(self, **_: Any) -> Any:
        self._fail("describe_rules")
        if self.stale:
            self.stale -= 1
            return {"Rules": [{"Actions": deepcopy(self._before)}]}
        return {"Rules": [{"Actions": deepcopy(self.actions)}]}

    def modify_rule(self, **given: Any) -> None:
        self._fail("modify_rule")
        for action in given["Actions"]:
            config = action.get("ForwardConfig") or {}
            listed = config.get("TargetGroups") or []
            if any(not 0 <= g["Weight"] <= 999 for g in listed):
                raise _refused("ValidationError", "a weight is a whole number from 0 to 999")
            enabled = (config.get("TargetGroupStickinessConfig") or {}).get("Enabled")
            if len(listed) > 1 and not enabled and self.sticky_groups & {g["TargetGroupArn"] for g in listed}:
                text = "You must enable group stickiness on a rule if you enabled target stickiness on one of its target groups"
                raise _refused("InvalidConfigurationRequest", text)
        self._before, self.actions = self.actions, deepcopy(given["Actions"])
        self.written.append(self.actions)

    def describe_tags(self, **_: Any) -> Any:
        return {"TagDescriptions": [{"Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()]}]}

    def add_tags(self, **given: Any) -> None:
        self._fail("add_tags")
        self.tags.update({tag["Key"]: tag["Value"] for tag in given["Tags"]})

    def describe_target_group_attributes(self, **given: Any) -> Any:
        value = "true" if given["TargetGroupArn"] in self.sticky_groups else "false"
        return {"Attributes": [{"Key": "stickiness.enabled", "Value": value}]}

    def weights(self) -> dict[str, int]:
        """Return the weight of each group by its name."""
        listed = [g for a in self.actions for g in (a.get("ForwardConfig") or {}).get("TargetGroups") or []]
        return {g["TargetGroupArn"].split("/")[1]: g["Weight"] for g in listed}

    def answer(self, clients: int, seed: int = 1) -> int:
        """Let clients 0 to `clients` send a request each; return how many the target answers. A cookie goes before the weight."""
        config = self.actions[-1]["ForwardConfig"]
        weights = {g["TargetGroupArn"]: g["Weight"] for g in config["TargetGroups"]}
        enabled, draw, on_target = (config.get("TargetGroupStickinessConfig") or {}).get("Enabled"), Random(seed), 0
        for n in range(clients):
            found = self._cookies.get(str(n), "") if enabled else ""
            if found not in weights:
                found = draw.choices(list(weights), list(weights.values()))[0]
            if enabled:
                self._cookies[str(n)] = found
            on_target += found == self.canary
        return on_target

    def _fail(self, call: str) -> None:
        if call in self.fails:
            self.fails[call]()


def _refused(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "ModifyRule")


def failing() -> None:
    """Refuse a call as AWS does where something is wrong on its side."""
    raise _refused("InternalFailure", "The request processing has failed")


def free(_: str) -> Pace:
    """Return a pace that keeps nobody waiting."""
    return Pace(1e9)


def throttled() -> None:
    """Refuse a call as AWS does where there are too many."""
    raise _refused("Throttling", "Rate exceeded")
