"""Provision, adapters layer: the port Leftovers on Azure: finds by tag, removes what it is given. Never touches what others made."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from fleetctl.adapters.azure.capacity_client import RESOURCES_API, told
from fleetctl.domain.capacity import Leftover
from fleetctl.errors import CapacityUnavailable

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient

INTENT_TAG = "fleetctl-intent"
POOL_TAG = "fleetctl-pool"
_KINDS: Mapping[str, Literal["machine", "card", "disk"]] = {
    "microsoft.compute/virtualmachines": "machine",
    "microsoft.network/networkinterfaces": "card",
    "microsoft.compute/disks": "disk",
}
_VERSIONS = {
    "microsoft.compute": "2024-07-01",
    "microsoft.network": "2024-05-01",
    "microsoft.managedidentity": "2023-01-31",
    "": "2021-04-01",
}
"""API version for a plain GET or DELETE by id, by provider ("" for a resource group)."""
_DISKS = "2024-03-02"
_GROUP = re.compile(r"/subscriptions/[^/]+/resourcegroups/[^/]+\Z", re.IGNORECASE)
_LETS_GO = ("virtualnetworks", "natgateways", "publicipaddresses", "networksecuritygroups")
"""Networks are taken apart in this order: a gateway or a rule in use by a subnet is not deleted; the group goes last of all."""
_GONE_S = 900.0
_LOOK_S = 0.2
_AGAIN_S = 5.0
_SOON = frozenset({"NicReservedForAnotherVm", "AnotherOperationInProgress", "RetryableError"})
"""What Azure says of something that can be removed a little later: a card is kept 180 s for the machine that failed with it.
Source: Microsoft Learn, "Troubleshoot NicReservedForAnotherVm"; read 2026-11-30."""
_ID = re.compile(r"/subscriptions/[0-9a-fA-F-]{36}/[A-Za-z0-9_.()/-]{1,900}\Z")


class AzureLeftovers:
    """Looks for a tag in one subscription.

    Args:
        client: made at the first call; wait_s: longest wait for something to be gone; again_s: between two tries, seconds.
    """

    def __init__(
        self, client: Callable[[], ComputeManagementClient], subscription: str, *, wait_s: float = _GONE_S, again_s: float = _AGAIN_S
    ) -> None:
        self._make = client
        self._subscription = subscription
        self._wait_s = wait_s
        self._again_s = again_s
        self._client: ComputeManagementClient | None = None

    def find(self, tag: str) -> tuple[Leftover, ...]:
        """Return everything that carries the tag; machines with their provisioning state, and their disks, tagged or not."""
        found: dict[str, Leftover] = {}
        with told("looking for leftovers"):
            groups = self._pages(f"/subscriptions/{self._subscription}/resourcegroups", RESOURCES_API, tag)
            for row in (*self._pages(f"/subscriptions/{self._subscription}/resources", RESOURCES_API, tag), *groups):
                one = _leftover(row)
                if one is not None and one.kind == "machine":
                    whole = self._get(one.id) or {}
                    one = replace(one, state=_state(whole))
                    disk = _os_disk(whole)
                    if disk:
                        name = disk.rsplit("/", 1)[1]
                        held = Leftover(id=disk, kind="disk", name=name, state="attached", region=one.region, pool=one.pool, holder=one.id)
                        found[disk.lower()] = held
                if one is not None:
                    found[one.id.lower()] = one
        return tuple(found.values())

    def remove(self, one: Leftover) -> None:
        """Delete it and wait until it is gone.

        Raises:
            CapacityUnavailable: capacity.unreachable, capacity.leftover where it is still there after the wait.
        """
        with told(f"removing {one.name}"):
            if one.kind == "machine":
                self._tag_disk(one.id)
            if _GROUP.match(one.id):
                self._refuse_full(one)
            deadline = time.monotonic() + self._wait_s
            answer = self._send("DELETE", one.id, _version(one.id))
            while _code(answer) in _SOON and time.monotonic() < deadline:
                time.sleep(self._again_s)
                answer = self._send("DELETE", one.id, _version(one.id))
            if answer.status_code not in (200, 202, 204, 404):
                answer.raise_for_status()
            while answer.status_code != 404 and self._get(one.id) is not None:
                if time.monotonic() > deadline:
                    text = f"{one.id} is still there after {self._wait_s:.0f} s."
                    raise CapacityUnavailable("capacity.leftover", text, hint=f"Delete it yourself: az resource delete --ids {one.id}")
                time.sleep(_LOOK_S)

    def _refuse_full(self, group: Leftover) -> None:
        """Refuse to delete a group in which anything else stands: Azure would delete that too, whoever made it.

        Raises:
            CapacityUnavailable: capacity.leftover.
        """
        rows = self._listed(f"{group.id}/resources", RESOURCES_API)
        ids = [str(row.get("id")) for row in rows if isinstance(row.get("id"), str)]
        there = next((i for i in ids if self._send("GET", i, _version(i)).status_code != 404), None)  # the list may lag
        if there is not None:
            text = f"{group.name} holds {there[:200]}, which is not known to be ours; nothing of it was touched."
            raise CapacityUnavailable("capacity.leftover", text, hint=f"Move or delete that, then: az group delete --name {group.name}")

    def _tag_disk(self, machine: str) -> None:
        """Give a machine's disk the machine's tags: Azure does not, and a disk whose machine is gone could not be found again."""
        whole = self._get(machine) or {}
        disk = _os_disk(whole)
        if disk:
            self._send("PATCH", disk, _DISKS, json={"tags": whole.get("tags") or {}}).raise_for_status()

    @property
    def _azure(self) -> ComputeManagementClient:
        if self._client is None:
            self._client = self._make()
        return self._client

    def _send(self, method: str, path: str, version: str, json: object = None, **more: str) -> Any:
        from azure.core.rest import HttpRequest

        endpoint = self._azure._config.base_url.rstrip("/")
        url = path if path.startswith("https:") else f"{endpoint}{path}"
        parameters = {} if path.startswith("https:") else {"api-version": version, **more}
        return self._azure.send_request(HttpRequest(method, url, params=parameters, json=json))

    def _get(self, id_: str) -> Mapping[str, object] | None:
        answer = self._send("GET", id_, _version(id_))
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        found = answer.json()
        return found if isinstance(found, dict) else {}

    def _pages(self, path: str, version: str, tag: str) -> Iterator[Mapping[str, object]]:
        quoted = tag.replace("'", "''")
        return self._listed(path, version, **{"$filter": f"tagName eq '{INTENT_TAG}' and tagValue eq '{quoted}'"})

    def _listed(self, path: str, version: str, **filters: str) -> Iterator[Mapping[str, object]]:
        answer = self._send("GET", path, version, **filters)
        while True:
            if answer.status_code == 404:  # the group itself is gone
                return
            answer.raise_for_status()
            page = answer.json()
            yield from (row for row in page.get("value", []) if isinstance(row, dict))
            link = page.get("nextLink")
            if not isinstance(link, str) or not link.startswith(self._azure._config.base_url.rstrip("/") + "/"):
                return
            answer = self._send("GET", link, version)


def _leftover(row: Mapping[str, object]) -> Leftover | None:
    id_, kind, name = (row.get(k) for k in ("id", "type", "name"))
    if not isinstance(id_, str) or not isinstance(name, str) or not _ID.match(id_) or ".." in id_:
        return None
    tags = row.get("tags")
    pool = tags.get(POOL_TAG) if isinstance(tags, dict) else None
    region = row.get("location")
    return Leftover(
        id=id_,
        kind=_KINDS.get(str(kind).lower(), "other"),
        name=name,
        state=_state(row),
        region=region if isinstance(region, str) else "",
        pool=pool if isinstance(pool, str) else "",
        rank=_rank(id_),
    )


def _rank(id_: str) -> int:
    if _GROUP.match(id_):
        return len(_LETS_GO) + 1
    kind = id_.rsplit("/", 2)[1].lower()
    return _LETS_GO.index(kind) + 1 if kind in _LETS_GO else 0


def _code(answer: Any) -> str:
    """Return the code of an error's body, "" where it has none."""
    if answer.status_code < 400:
        return ""
    try:
        found = answer.json().get("error", {}).get("code", "")
    except (ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) else ""


def _state(row: Mapping[str, object]) -> str:
    properties = row.get("properties")
    state = properties.get("provisioningState") if isinstance(properties, dict) else None
    return state if isinstance(state, str) else "unknown"


def _os_disk(row: Mapping[str, object]) -> str:
    found: object = row.get("properties")
    for key in ("storageProfile", "osDisk", "managedDisk", "id"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found.startswith("/subscriptions/") else ""


def _version(id_: str) -> str:
    low = id_.lower()
    if "/microsoft.compute/disks/" in low:
        return _DISKS
    provider = low.rsplit("/providers/", 1)[1].split("/", 1)[0] if "/providers/" in low else ""
    return _VERSIONS.get(provider, RESOURCES_API)
