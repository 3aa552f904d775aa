"""Doubles of what moto and an API double do not have: a data plane. They read the weights as a gateway would and count who answers.

Nothing is sent anywhere: a request is a draw between the two sides, in the same stable order as the fake router's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config

from fleetctl.domain.ids import CellId

MINUTE = timedelta(minutes=1)


def client(url: str, service: str) -> Any:
    """Return a client of moto that does not wait for long."""
    config = Config(connect_timeout=1, read_timeout=3, retries={"max_attempts": 0})
    keys = {"aws_access_key_id": "emulated", "aws_secret_access_key": "emulated"}
    return boto3.client(service, region_name="us-east-1", endpoint_url=url, config=config, **keys)


class AlbPlane:
    """A load balancer of moto with one rule per cell, and its data plane: a double that fills CloudWatch.

    Args:
        url: of a moto server.
    """

    def __init__(self, url: str, cells: tuple[CellId, ...]) -> None:
        self.url = url
        self._elb, self._watch = client(url, "elbv2"), client(url, "cloudwatch")
        self.minute = datetime.now(UTC).replace(second=0, microsecond=0) - 30 * MINUTE
        """When the next requests come, on the double's own clock."""
        ec2 = client(url, "ec2")
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        subnets = [s["SubnetId"] for s in ec2.describe_subnets()["Subnets"][:2]]
        self._balancer = self._elb.create_load_balancer(Name="edge", Subnets=subnets)["LoadBalancers"][0]["LoadBalancerArn"]
        self.groups: dict[tuple[CellId, str], str] = {}
        self.rules: dict[CellId, str] = {}
        listener = ""
        for n, cell in enumerate(cells, 1):
            for arm in ("baseline", "canary"):
                made = self._elb.create_target_group(Name=f"{cell}-{arm}", Protocol="HTTP", Port=8000, VpcId=vpc, TargetType="ip")
                self.groups[cell, arm] = made["TargetGroups"][0]["TargetGroupArn"]
            forward = self.forward(cell, 0, 999)
            if not listener:
                made = self._elb.create_listener(LoadBalancerArn=self._balancer, Protocol="HTTP", Port=80, DefaultActions=[forward])
                listener = made["Listeners"][0]["ListenerArn"]
            conditions = [{"Field": "path-pattern", "Values": [f"/{cell}/*"]}]
            made = self._elb.create_rule(ListenerArn=listener, Conditions=conditions, Priority=n, Actions=[forward])
            self.rules[cell] = made["Rules"][0]["RuleArn"]
        self.listener = listener

    def forward(self, cell: CellId, canary: int, baseline: int) -> dict[str, Any]:
        """Return an action with these weights."""
        weights = {self.groups[cell, "baseline"]: baseline, self.groups[cell, "canary"]: canary}
        groups = [{"TargetGroupArn": arn, "Weight": weight} for arn, weight in weights.items()]
        return {"Type": "forward", "ForwardConfig": {"TargetGroups": groups}}

    def send(self, cell: CellId, n: int) -> None:
        """Let `n` requests come in one minute, split as the rule says, and count them as CloudWatch does."""
        action = self._elb.describe_rules(RuleArns=[self.rules[cell]])["Rules"][0]["Actions"][-1]
        weights = {g["TargetGroupArn"]: g["Weight"] for g in action["ForwardConfig"]["TargetGroups"]}
        share = weights[self.groups[cell, "canary"]] / sum(weights.values())
        canary = sum(i < share * n for i in range(n))
        for arm, count in (("canary", canary), ("baseline", n - canary)):
            group = self.groups[cell, arm].rpartition(":")[2]
            dimensions = [
                {"Name": "TargetGroup", "Value": group},
                {"Name": "LoadBalancer", "Value": self._balancer.partition("loadbalancer/")[2]},
            ]
            point = {"MetricName": "RequestCount", "Dimensions": dimensions, "Timestamp": self.minute, "Value": count, "Unit": "Count"}
            self._watch.put_metric_data(Namespace="AWS/ApplicationELB", MetricData=[point])

    def later(self) -> datetime:
        """Let some minutes pass on the double's clock and return a moment between what was and what comes."""
        self.minute += 10 * MINUTE
        return self.minute - 5 * MINUTE
