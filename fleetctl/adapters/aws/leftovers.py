"""Provision, adapters layer: the port Leftovers on AWS: finds by tag, removes what it is given. Never touches what others made.

Only what costs money by the hour or stands in the way is looked for: instances, network cards and volumes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fleetctl.domain.capacity import Leftover
from fleetctl.errors import CapacityUnavailable, CredentialsMissing

INTENT_TAG = "fleetctl-intent"
POOL_TAG = "fleetctl-pool"
_REFUSED = frozenset({"UnauthorizedOperation", "AuthFailure", "ExpiredToken", "RequestExpired", "InvalidClientTokenId", "AccessDenied"})
_GONE_S = 900.0
_LOOK_S = 0.5


class AwsLeftovers:
    """Looks for a tag in one region.

    Args:
        client: makes a boto3 client of (service, region); None for boto3's own; wait_s: longest wait for something to be gone, seconds.
    """

    def __init__(self, region: str, client: Callable[[str, str], Any] | None = None, *, wait_s: float = _GONE_S) -> None:
        self._region = region
        self._make = client
        self._wait_s = wait_s
        self._ec2: Any = None

    def find(self, tag: str) -> tuple[Leftover, ...]:
        """Return instances that are not over, and cards and volumes that no instance uses, that carry the tag."""
        wanted = [{"Name": f"tag:{INTENT_TAG}", "Values": [tag]}]
        with _told("looking for leftovers"):
            return tuple(self._found(wanted))

    def remove(self, one: Leftover) -> None:
        """Remove it and wait until it is gone.

        Raises:
            CapacityUnavailable: capacity.unreachable, capacity.leftover where it is still there after the wait.
        """
        with _told(f"removing {one.name}"):
            self._delete(one)
            deadline = time.monotonic() + self._wait_s
            while any(o.id == one.id for o in self._found(_by_id(one))):
                if time.monotonic() > deadline:
                    text = f"{one.id} is still there after {self._wait_s:.0f} s."
                    raise CapacityUnavailable("capacity.leftover", text, hint="Remove it yourself in the AWS console")
                time.sleep(_LOOK_S)

    @property
    def _client(self) -> Any:
        if self._ec2 is None:
            if self._make is not None:
                self._ec2 = self._make("ec2", self._region)
            else:
                import boto3

                self._ec2 = boto3.client("ec2", region_name=self._region)
        return self._ec2

    def _delete(self, one: Leftover) -> None:
        from botocore.exceptions import ClientError

        try:
            if one.kind == "machine":
                self._client.terminate_instances(InstanceIds=[one.id])
            elif one.kind == "card":
                self._client.delete_network_interface(NetworkInterfaceId=one.id)
            elif one.kind == "disk":
                self._client.delete_volume(VolumeId=one.id)
        except ClientError as e:
            if not str(e.response.get("Error", {}).get("Code", "")).endswith(".NotFound"):
                raise

    def _found(self, wanted: list[dict[str, Any]]) -> Iterator[Leftover]:
        names = {f["Name"] for f in wanted}
        if names & {f"tag:{INTENT_TAG}", "instance-id"}:
            for page in self._client.get_paginator("describe_instances").paginate(Filters=wanted):
                for i in (i for r in page["Reservations"] for i in r["Instances"]):
                    if i["State"]["Name"] != "terminated":
                        yield self._row(i["InstanceId"], "machine", i["State"]["Name"], i.get("Tags", []))
        if names & {f"tag:{INTENT_TAG}", "network-interface-id"}:
            for page in self._client.get_paginator("describe_network_interfaces").paginate(Filters=wanted):
                for n in (n for n in page["NetworkInterfaces"] if n["Status"] == "available"):
                    yield self._row(n["NetworkInterfaceId"], "card", n["Status"], n.get("TagSet", []))
        if names & {f"tag:{INTENT_TAG}", "volume-id"}:
            for page in self._client.get_paginator("describe_volumes").paginate(Filters=wanted):
                for v in page["Volumes"]:
                    if v["State"] in ("available", "error"):
                        yield self._row(v["VolumeId"], "disk", v["State"], v.get("Tags", []))

    def _row(self, id_: str, kind: str, state: str, tags: list[dict[str, str]]) -> Leftover:
        by_name = {t.get("Key", ""): t.get("Value", "") for t in tags}
        return Leftover(
            id=id_,
            kind="machine" if kind == "machine" else "card" if kind == "card" else "disk",
            name=by_name.get("Name", id_),
            state=state,
            region=self._region,
            pool=by_name.get(POOL_TAG, ""),
        )


def _by_id(one: Leftover) -> list[dict[str, Any]]:
    name = {"machine": "instance-id", "card": "network-interface-id", "disk": "volume-id"}.get(one.kind, "instance-id")
    return [{"Name": name, "Values": [one.id]}]


@contextmanager
def _told(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except NoCredentialsError as e:
        raise CredentialsMissing("credentials.refused", f"{what}: no AWS credentials were found.", hint="Run: aws configure") from e
    except ClientError as e:
        code = str(e.response.get("Error", {}).get("Code", ""))
        if code in _REFUSED:
            raise CredentialsMissing("credentials.refused", f"{what}: AWS says {code}.", hint="Run: fleetctl doctor") from e
        raise CapacityUnavailable("capacity.unreachable", f"{what}: AWS says {code}.", hint="Run: fleetctl doctor") from e
    except BotoCoreError as e:
        text = f"{what}: AWS did not answer: {type(e).__name__}."
        raise CapacityUnavailable("capacity.unreachable", text, hint="Run: fleetctl doctor") from e
