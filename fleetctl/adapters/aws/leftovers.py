"""Provision, adapters layer: the port Leftovers on AWS: finds by tag, removes what it is given. Never touches what others made.

A network that a killed run made and did not write down costs money too (its NAT gateway), and counts against the region's limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from fleetctl.domain.capacity import Leftover
from fleetctl.errors import CapacityUnavailable, CredentialsMissing

INTENT_TAG = "fleetctl-intent"
POOL_TAG = "fleetctl-pool"
_GROUP_TAG = "aws:autoscaling:groupName"
_REFUSED = frozenset({"UnauthorizedOperation", "AuthFailure", "ExpiredToken", "RequestExpired", "InvalidClientTokenId", "AccessDenied"})
_GONE_S = 900.0
_LOOK_S = 0.5
_IN_USE = frozenset(
    {
        "DependencyViolation",
        "InvalidIPAddress.InUse",
        "InvalidPlacementGroup.InUse",
        "IncorrectState",
        "ResourceInUse",
        "ScalingActivityInProgress",
    }
)
"""What AWS says while something still hangs on it; asked again until it is gone or the wait is over."""


class _Net(NamedTuple):
    """A kind of thing: how it is listed, by which key its id is told, and how it is removed."""

    name: str
    listing: str
    key: str
    id: str
    delete: str


_NETWORK = (
    _Net("natgateway", "describe_nat_gateways", "NatGateways", "NatGatewayId", "delete_nat_gateway"),
    _Net("elastic-ip", "describe_addresses", "Addresses", "AllocationId", "release_address"),
    _Net("launch-template", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId", "delete_launch_template"),
    _Net("placement-group", "describe_placement_groups", "PlacementGroups", "GroupName", "delete_placement_group"),
    _Net("subnet", "describe_subnets", "Subnets", "SubnetId", "delete_subnet"),
    _Net("route-table", "describe_route_tables", "RouteTables", "RouteTableId", "delete_route_table"),
    _Net("internet-gateway", "describe_internet_gateways", "InternetGateways", "InternetGatewayId", "delete_internet_gateway"),
    _Net("security-group", "describe_security_groups", "SecurityGroups", "GroupId", "delete_security_group"),
    _Net("vpc", "describe_vpcs", "Vpcs", "VpcId", "delete_vpc"),
)
"""Tagged things besides machines, cards and volumes, in the order in which AWS lets them go."""
_BY_NAME = {net.name: net for net in _NETWORK}
Kind = Literal["machine", "card", "disk", "other"]


class AwsLeftovers:
    """Looks for a tag in some regions: all where a pool may have been tried.

    Args:
        regions: a region's name, or several; client: makes a boto3 client of (service, region); None for boto3's own.
        wait_s: longest wait for something to be gone, seconds.
    """

    def __init__(self, regions: str | Sequence[str], client: Callable[[str, str], Any] | None = None, *, wait_s: float = _GONE_S) -> None:
        self._regions = (regions,) if isinstance(regions, str) else tuple(regions)
        self._make = client
        self._wait_s = wait_s
        self._clients: dict[tuple[str, str], Any] = {}

    def find(self, tag: str) -> tuple[Leftover, ...]:
        """Return what carries the tag: groups, instances that are not over, cards and volumes that no instance uses, networks."""
        with _told("looking for leftovers"):
            return tuple(one for region in self._regions for one in self._found(region, tag))

    def remove(self, one: Leftover) -> None:
        """Remove it and wait until it is gone.

        Raises:
            CapacityUnavailable: capacity.unreachable, capacity.leftover where it is still there after the wait.
        """
        region = one.region or self._regions[0]
        with _told(f"removing {one.name}"):
            deadline = time.monotonic() + self._wait_s
            while not self._is_gone(region, one):
                if time.monotonic() > deadline:
                    text = f"{one.id} is still there after {self._wait_s:.0f} s."
                    raise CapacityUnavailable("capacity.leftover", text, hint="Remove it yourself in the AWS console")
                time.sleep(_LOOK_S)

    def _client(self, region: str, service: str = "ec2") -> Any:
        if (service, region) not in self._clients:
            if self._make is not None:
                self._clients[service, region] = self._make(service, region)
            else:
                import boto3

                self._clients[service, region] = boto3.client(service, region_name=region)
        return self._clients[service, region]

    def _found(self, region: str, tag: str) -> Iterator[Leftover]:
        wanted = [{"Name": f"tag:{INTENT_TAG}", "Values": [tag]}]
        yield from self._groups(region, wanted)
        yield from self._machines(region, wanted)
        yield from self._cards(region, wanted)
        yield from self._volumes(region, wanted)
        for net in _NETWORK:
            yield from self._of(region, net, wanted)

    def _groups(self, region: str, wanted: list[dict[str, Any]]) -> Iterator[Leftover]:
        for page in self._client(region, "autoscaling").get_paginator("describe_auto_scaling_groups").paginate(Filters=wanted):
            for g in page["AutoScalingGroups"]:
                yield _row(region, g["AutoScalingGroupName"], "other", "group", g.get("Tags", []), rank=-1)

    def _machines(self, region: str, wanted: list[dict[str, Any]]) -> Iterator[Leftover]:
        for page in self._client(region).get_paginator("describe_instances").paginate(Filters=wanted):
            for i in (i for r in page["Reservations"] for i in r["Instances"]):
                if i["State"]["Name"] != "terminated":
                    yield _row(region, i["InstanceId"], "machine", i["State"]["Name"], i.get("Tags", []))

    def _cards(self, region: str, wanted: list[dict[str, Any]]) -> Iterator[Leftover]:
        for page in self._client(region).get_paginator("describe_network_interfaces").paginate(Filters=wanted):
            for n in (n for n in page["NetworkInterfaces"] if n["Status"] == "available"):
                yield _row(region, n["NetworkInterfaceId"], "card", n["Status"], n.get("TagSet", []))

    def _volumes(self, region: str, wanted: list[dict[str, Any]]) -> Iterator[Leftover]:
        for page in self._client(region).get_paginator("describe_volumes").paginate(Filters=wanted):
            for v in (v for v in page["Volumes"] if v["State"] in ("available", "error")):
                yield _row(region, v["VolumeId"], "disk", v["State"], v.get("Tags", []))

    def _of(self, region: str, net: _Net, wanted: list[dict[str, Any]]) -> Iterator[Leftover]:
        if net.name == "placement-group" and not self._is_tagged(region, net.name, wanted):
            return
        given = {"Filter" if net.name == "natgateway" else "Filters": wanted}
        for thing in getattr(self._client(region), net.listing)(**given)[net.key]:
            # A NAT gateway is told for an hour after its end; the default group goes with its network.
            if thing.get("State") != "deleted" and not (net.name == "security-group" and thing["GroupName"] == "default"):
                yield _row(region, thing[net.id], "other", net.name, thing.get("Tags", []), rank=_NETWORK.index(net))

    def _is_tagged(self, region: str, kind: str, wanted: list[dict[str, Any]]) -> bool:
        """Tell whether any of a kind carries the tag; an endpoint that does not know the kind is not asked for it."""
        filters = [{"Name": "resource-type", "Values": [kind]}, {"Name": "key", "Values": [INTENT_TAG]}]
        values = [{"Name": "value", "Values": w["Values"]} for w in wanted]
        return bool(self._client(region).describe_tags(Filters=[*filters, *values])["Tags"])

    def _is_gone(self, region: str, one: Leftover) -> bool:
        """Ask for its removal, again if something still hangs on it; tell whether it is no more."""
        from botocore.exceptions import ClientError

        try:
            self._delete(region, one)
        except ClientError as e:
            if _is_missing(e):
                return True
            if _code(e) not in _IN_USE:
                raise
            return False
        return not self._is_there(region, one)

    def _is_there(self, region: str, one: Leftover) -> bool:
        wanted = {"machine": "instance-id", "card": "network-interface-id", "disk": "volume-id"}.get(one.kind)
        if one.kind == "machine":
            return any(o.id == one.id for o in self._machines(region, _by(wanted, one.id)))
        if one.kind == "card":
            return any(o.id == one.id for o in self._cards(region, _by(wanted, one.id)))
        if one.kind == "disk":
            return any(o.id == one.id for o in self._volumes(region, _by(wanted, one.id)))
        if one.state == "group":
            groups = self._client(region, "autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[one.id])
            return bool(groups["AutoScalingGroups"])
        net = _BY_NAME[one.state]
        name = "allocation-id" if net.name == "elastic-ip" else "nat-gateway-id" if net.name == "natgateway" else ""
        return bool(name) and any(o.id == one.id for o in self._of(region, net, _by(name, one.id)))

    def _delete(self, region: str, one: Leftover) -> None:
        ec2, id_ = self._client(region), one.id
        if one.kind == "machine":
            ec2.terminate_instances(InstanceIds=[id_])
        elif one.kind == "card":
            ec2.delete_network_interface(NetworkInterfaceId=id_)
        elif one.kind == "disk":
            ec2.delete_volume(VolumeId=id_)
        elif one.state == "group":
            self._client(region, "autoscaling").delete_auto_scaling_group(AutoScalingGroupName=id_, ForceDelete=True)
        else:
            net = _BY_NAME[one.state]
            _loosen(ec2, net.name, id_)
            getattr(ec2, net.delete)(**{net.id: id_})


def _loosen(ec2: Any, name: str, id_: str) -> None:
    """Take away what AWS wants gone first."""
    if name == "route-table":
        for table in ec2.describe_route_tables(RouteTableIds=[id_])["RouteTables"]:
            for a in (a for a in table.get("Associations", []) if not a.get("Main")):
                ec2.disassociate_route_table(AssociationId=a["RouteTableAssociationId"])
    if name == "internet-gateway":
        for gateway in ec2.describe_internet_gateways(InternetGatewayIds=[id_])["InternetGateways"]:
            for a in gateway.get("Attachments", []):
                ec2.detach_internet_gateway(InternetGatewayId=id_, VpcId=a["VpcId"])


def _row(region: str, id_: str, kind: Kind, state: str, tags: list[dict[str, Any]], *, rank: int = 0) -> Leftover:
    by_name = {t.get("Key", ""): t.get("Value", "") for t in tags}
    return Leftover(
        id=id_,
        kind=kind,
        name=by_name.get("Name", id_),
        state=state,
        region=region,
        pool=by_name.get(POOL_TAG, ""),
        holder=by_name.get(_GROUP_TAG, ""),
        rank=rank,
    )


def _by(name: str | None, id_: str) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": [id_]}]


def _code(e: Any) -> str:
    return str(e.response.get("Error", {}).get("Code", ""))


def _is_missing(e: Any) -> bool:
    return _code(e).endswith((".NotFound", ".Unknown", "NotFoundException")) or "not found" in str(e).lower()


@contextmanager
def _told(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except NoCredentialsError as e:
        raise CredentialsMissing("credentials.refused", f"{what}: no AWS credentials were found.", hint="Run: aws configure") from e
    except ClientError as e:
        code = _code(e)
        if code in _REFUSED:
            raise CredentialsMissing("credentials.refused", f"{what}: AWS says {code}.", hint="Run: fleetctl doctor") from e
        raise CapacityUnavailable("capacity.unreachable", f"{what}: AWS says {code}.", hint="Run: fleetctl doctor") from e
    except BotoCoreError as e:
        text = f"{what}: AWS did not answer: {type(e).__name__}."
        raise CapacityUnavailable("capacity.unreachable", text, hint="Run: fleetctl doctor") from e
