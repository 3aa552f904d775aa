"""Inventory, adapter layer: what runs in an AWS account, one part per region. Never writes to AWS, never guesses what a type holds.

How many GPUs an instance type has is asked of AWS, once per type for the whole account.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fleetctl.adapters.aws.client import HOME_REGION, AwsAccess, AwsApi, translated
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import short, tag_facts
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import FleetctlError

PAGE = 1000
_ALIVE = ("pending", "running", "stopping", "stopped")
_GPU_QUOTA = re.compile(r"\b(P\d*[a-z]*|G\d*[a-z]*|G and VT)\b.*\b(instances?|Instance Requests)\b")


class AwsDiscovery:
    """`PartedDiscovery` of one AWS account.

    Args:
        name: of this source; regions: only these, () for every region that the account has switched on.
        every_vm: also instances without a GPU; now: the time.
    """

    def __init__(
        self, name: str, access: AwsAccess, now: Callable[[], Instant], *, regions: tuple[str, ...] = (), every_vm: bool = False
    ) -> None:
        self._name = name
        self.api = AwsApi(access)
        self._now = now
        self._regions = regions
        self._every_vm = every_vm
        self._types: dict[str, Mapping[str, Scalar]] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Return "aws" and the source's name."""
        return f"aws {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return the regions."""
        if self._regions:
            return self._regions
        home = self.api.session.region_name or HOME_REGION
        with translated("the regions"):
            found = self.api.client("ec2", home).describe_regions()["Regions"]
        return tuple(sorted(str(r["RegionName"]) for r in found))

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield what one region holds, or all of them."""
        for region in [scope] if scope else self.parts():
            yield from self._region(region)

    def _region(self, region: str) -> Iterator[Facts | Gap]:
        ec2 = self.api.client("ec2", region)
        mine: dict[str, str] = {}
        with translated(f"the instances of {region}"):
            pages = ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "instance-state-name", "Values": list(_ALIVE)}], PaginationConfig={"PageSize": PAGE}
            )
            for page in pages:
                yield from self._page(ec2, page, region, mine)
        for what, rest in (
            ("scaling groups", self._groups),
            ("target groups", self._targets),
            ("capacity reservations", self._reservations),
            ("quotas", self._quotas),
        ):
            try:
                yield from rest(region, mine)
            except FleetctlError as e:
                yield Gap(scope=region, reason=f"{what}: {e.message}", source=self.name, code=e.code, mend=e.hint)

    def _page(self, ec2: Any, page: Mapping[str, Any], region: str, mine: dict[str, str]) -> Iterator[Facts]:
        found = [(r.get("OwnerId", ""), i) for r in page.get("Reservations", ()) for i in r.get("Instances", ())]
        self._learn(ec2, {i["InstanceType"] for _, i in found})
        now, source = self._now(), f"{self.name}/{region}"
        for owner, instance in found:
            row = _machine(instance, owner, region, self._types.get(instance["InstanceType"], {}))
            if row["gpus"] or self._every_vm:
                mine[instance["InstanceId"]] = str(row["machine"])
                if instance.get("PrivateIpAddress"):
                    mine[instance["PrivateIpAddress"]] = str(row["machine"])
                yield Facts(values=row, source=source, seen_at=now)

    def _learn(self, ec2: Any, types: Iterable[str]) -> None:
        with self._lock:
            new = sorted(set(types) - set(self._types))
            for start in range(0, len(new), 100):
                with translated("the instance types"):
                    pages = ec2.get_paginator("describe_instance_types").paginate(InstanceTypes=new[start : start + 100])
                    self._types.update({t["InstanceType"]: _shape(t) for page in pages for t in page["InstanceTypes"]})

    def _groups(self, region: str, mine: Mapping[str, str]) -> Iterator[Facts]:
        now, source = self._now(), f"{self.name}/{region}"
        with translated(f"the scaling groups of {region}"):
            for page in self.api.client("autoscaling", region).get_paginator("describe_auto_scaling_groups").paginate():
                for group in page["AutoScalingGroups"]:
                    members = [i["InstanceId"] for i in group.get("Instances", ())]
                    if not members or self._every_vm or any(m in mine for m in members):
                        tags = tag_facts({t["Key"]: t.get("Value") for t in group.get("Tags", ())})
                        values: dict[str, Scalar] = {
                            "group": f"aws/{region}/{short(group['AutoScalingGroupName'])}",
                            "form": "scaling group",
                        }
                        values |= {"name": short(group["AutoScalingGroupName"]), "cloud": "aws", "region": region, **tags}
                        values |= {"count": group["DesiredCapacity"], "minimum": group["MinSize"], "maximum": group["MaxSize"]}
                        yield Facts(values=values | {"autoscaler": "aws scaling group"}, source=source, seen_at=now)

    def _targets(self, region: str, mine: Mapping[str, str]) -> Iterator[Facts]:
        now, source, balancers = self._now(), f"{self.name}/{region}", self.api.client("elbv2", region)
        with translated(f"the target groups of {region}"):
            for page in balancers.get_paginator("describe_target_groups").paginate():
                for group in page["TargetGroups"]:
                    arn = group["TargetGroupArn"]
                    health = balancers.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
                    ids = [str(h["Target"]["Id"]) for h in health]
                    if any(i in mine for i in ids):
                        healthy = sum(h["TargetHealth"]["State"] == "healthy" for h in health)
                        values: dict[str, Scalar] = {"target_group": short(arn), "name": short(group["TargetGroupName"]), "region": region}
                        values |= {"targets": len(ids), "healthy": healthy, "port": group.get("Port"), "cloud": "aws"}
                        yield Facts(values=values, source=source, seen_at=now)

    def _reservations(self, region: str, _: Mapping[str, str]) -> Iterator[Facts]:
        now, source = self._now(), f"{self.name}/{region}"
        with translated(f"the capacity reservations of {region}"):
            for page in self.api.client("ec2", region).get_paginator("describe_capacity_reservations").paginate():
                for r in page["CapacityReservations"]:
                    if r.get("State") in ("active", "scheduled", "pending"):
                        values: dict[str, Scalar] = {
                            "reservation": f"aws/{region}/{r['CapacityReservationId']}",
                            "sku": r.get("InstanceType"),
                        }
                        values |= {"count": r.get("TotalInstanceCount"), "free": r.get("AvailableInstanceCount"), "region": region}
                        until = r.get("EndDate")
                        yield Facts(values=values | {"until": until.isoformat() if until else None}, source=source, seen_at=now)

    def _quotas(self, region: str, _: Mapping[str, str]) -> Iterator[Facts]:
        now, source = self._now(), f"{self.name}/{region}"
        with translated(f"the quotas of {region}"):
            for page in self.api.client("service-quotas", region).get_paginator("list_service_quotas").paginate(ServiceCode="ec2"):
                for quota in page["Quotas"]:
                    if _GPU_QUOTA.search(quota.get("QuotaName", "")):
                        values: dict[str, Scalar] = {"quota": f"aws/{region}/{quota['QuotaCode']}", "family": short(quota["QuotaName"])}
                        yield Facts(
                            values=values | {"limit": quota.get("Value"), "region": region, "cloud": "aws"}, source=source, seen_at=now
                        )


def _machine(instance: Mapping[str, Any], owner: str, region: str, shape: Mapping[str, Scalar]) -> dict[str, Scalar]:
    tags = {t["Key"]: t.get("Value") for t in instance.get("Tags", ())}
    names = [tags.get("Name"), instance.get("PrivateDnsName"), str(instance.get("PrivateDnsName") or "").partition(".")[0]]
    addresses = [instance.get("PrivateIpAddress"), instance.get("PublicIpAddress")]
    group = tags.get("aws:autoscaling:groupName")
    out: dict[str, Scalar] = {
        "machine": instance["InstanceId"],
        "name": " ".join("_".join(short(str(n)).split()) for n in dict.fromkeys(names) if n and n.strip()),
        "address": " ".join(a for a in addresses if a) or None,
        "cloud": "aws",
        "account": owner or None,
        "region": region,
        "zone": (instance.get("Placement") or {}).get("AvailabilityZone"),
        "sku": instance["InstanceType"],
        "gpus": shape.get("gpus", 0),
        "gpu": shape.get("gpu"),
        "priority": "spot" if instance.get("InstanceLifecycle") == "spot" else "regular",
        "state": (instance.get("State") or {}).get("Name"),
        "group": f"aws/{region}/{short(group)}" if group else None,
        **tag_facts(tags),
    }
    return {k: v for k, v in out.items() if v is not None}


def _shape(type_: Mapping[str, Any]) -> Mapping[str, Scalar]:
    gpus = (type_.get("GpuInfo") or {}).get("Gpus") or ()
    names = dict.fromkeys(f"{g.get('Manufacturer', '')} {g.get('Name', '')}".strip() for g in gpus)
    return {"gpus": sum(int(g.get("Count", 0)) for g in gpus), "gpu": ", ".join(names) or None}
