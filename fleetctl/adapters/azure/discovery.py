"""Inventory, adapter layer: what runs in Azure subscriptions, one part per region. Never writes to Azure, never asks once per VM.

Regions and sizes with GPUs come from the subscription's own list of sizes, never from a table or a guess. The power state of all VMs
comes from one list of the subscription (statusOnly), read once and shared by its regions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetctl.adapters.azure.client import AzureAccess, AzureApi, credential_of, translated
from fleetctl.domain.people import Facts, Gap
from fleetctl.domain.tags import short, tag_facts
from fleetctl.domain.units import Instant, Scalar
from fleetctl.errors import CredentialsMissing, FleetctlError, InventoryFailed

_SUBSCRIPTION = re.compile(r"[0-9A-Za-z-]{1,64}")
"""What may stand in a path; a subscription's id is a UUID."""
WHOLE = "all regions"
"""The part of a subscription that holds what Azure lists without a region: scale sets and reservations."""


@dataclass(slots=True)
class _Subscription:
    api: AzureApi
    lock: threading.Lock = field(default_factory=threading.Lock)
    sizes: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    stopped: dict[str, str] | None = None


class AzureDiscovery:
    """`PartedDiscovery` of Azure subscriptions.

    Args:
        name: of this source; regions: only these, () for every region that sells a GPU size to the subscription.
        every_vm: also VMs without a GPU; now: the time.
    """

    def __init__(
        self, name: str, access: AzureAccess, now: Callable[[], Instant], *, regions: tuple[str, ...] = (), every_vm: bool = False
    ) -> None:
        self._name = name
        self._access = access
        self._now = now
        self._regions = regions
        self._every_vm = every_vm
        self._open: dict[str, _Subscription] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Return "azure" and the source's name."""
        return f"azure {self._name}"

    def parts(self) -> tuple[str, ...]:
        """Return a part per region, and one for what Azure lists without a region."""
        if not self._access.subscriptions:
            raise CredentialsMissing(
                "credentials.azure", "no Azure subscription is named.", hint="Set: AZURE_SUBSCRIPTION_ID, or settings.subscriptions"
            )
        for subscription in self._access.subscriptions:
            if not _SUBSCRIPTION.fullmatch(subscription):
                text = f"{subscription[:60]!r} is no id of a subscription."
                raise InventoryFailed("inventory.azure", text, hint="Look: az account list --output table")
        out = []
        for subscription in self._access.subscriptions:
            regions = self._regions or self._selling(subscription)
            out += [f"{subscription}/{region}" for region in regions] + [f"{subscription}/{WHOLE}"]
        return tuple(out)

    def scan(self, scope: str) -> Iterator[Facts | Gap]:
        """Yield what one part holds, or all of them."""
        for part in [scope] if scope else self.parts():
            subscription, _, region = part.partition("/")
            yield from self._whole(subscription, part) if region == WHOLE else self._region(subscription, region, part)

    def _subscription(self, id_: str) -> _Subscription:
        with self._lock:
            if id_ not in self._open:
                self._open[id_] = _Subscription(AzureApi(self._access, id_, credential_of(self._access)))
            return self._open[id_]

    def _selling(self, subscription: str) -> list[str]:
        """Return the regions that sell a size with GPUs to this subscription."""
        at = self._subscription(subscription)
        with translated(f"the VM sizes of subscription {subscription}"):
            for sku in at.api.compute().resource_skus.list():
                self._note_size(at, sku)
        return sorted(region for region, sizes in at.sizes.items() if self._every_vm or any(s["gpus"] for s in sizes.values()))

    def _note_size(self, at: _Subscription, sku: Any) -> None:
        if sku.resource_type != "virtualMachines" or not sku.name:
            return
        capabilities = {c.name: c.value for c in sku.capabilities or ()}
        gpus = capabilities.get("GPUs", "0")
        why = sorted({_word(r.reason_code) for r in sku.restrictions or () if _word(r.type) == "Location"})
        row = {"gpus": int(gpus) if gpus.isdigit() else 0, "family": sku.family or "", "restricted": ", ".join(why)}
        for region in sku.locations or ():
            at.sizes.setdefault(region.lower(), {})[sku.name.casefold()] = {**row, "name": sku.name}

    def _region(self, subscription: str, region: str, part: str) -> Iterator[Facts | Gap]:
        at = self._subscription(subscription)
        source = f"{self.name}/{part}"
        if region not in at.sizes:
            with translated(f"the VM sizes of {region}"):
                for sku in at.api.compute().resource_skus.list(filter=f"location eq '{region}'"):
                    self._note_size(at, sku)
        sizes = at.sizes.get(region, {})
        seen: list[dict[str, Scalar]] = []
        broken: FleetctlError | None = None
        try:
            with translated(f"the VMs of {region}"):
                for page in at.api.pages(f"locations/{region}/virtualMachines"):
                    rows = (_machine(vm, region, subscription, sizes) for vm in page)
                    seen += [row for row in rows if row is not None and (self._every_vm or row["gpus"])]
        except FleetctlError as e:
            broken = e  # what its first pages held is told before the failure is
        states: Mapping[str, str] = {}
        if seen:
            try:
                states = self._stopped(at)
            except FleetctlError as e:
                yield Gap(scope=part, reason=f"power states: {e.message}", source=self.name, code=e.code, mend=e.hint)
        now = self._now()
        for row in seen:
            state = states.get(str(row["machine"]), "running" if at.stopped is not None else "unknown")
            if state != "unknown":
                row["state"] = state
            yield Facts(values=row, source=source, seen_at=now)
        if broken is not None:
            raise broken
        yield from self._quotas(at, region, part, sizes)

    def _quotas(self, at: _Subscription, region: str, part: str, sizes: Mapping[str, Mapping[str, Any]]) -> Iterator[Facts | Gap]:
        source, now = f"{self.name}/{part}", self._now()
        families = {_family(str(s["family"])) for s in sizes.values() if s["gpus"]} | {"cores", "lowprioritycores"}
        for size in sizes.values():
            if size["gpus"]:
                values = {"size": f"azure/{region}/{size['name']}", "sku": size["name"], "region": region, **_without_name(size)}
                yield Facts(values=values, source=source, seen_at=now)
        try:
            with translated(f"the quotas of {region}"):
                for usage in at.api.compute().usage.list(region):
                    name = usage.name.value if usage.name else ""
                    if name and _family(name) in families:
                        id_ = f"azure/{at.api.subscription}/{region}/{name}"
                        used: dict[str, Scalar] = {"quota": id_, "family": name, "used": usage.current_value, "limit": usage.limit}
                        yield Facts(values=used | {"region": region, "cloud": "azure"}, source=source, seen_at=now)
        except FleetctlError as e:
            yield Gap(scope=part, reason=f"quotas: {e.message}", source=self.name, code=e.code, mend=e.hint)

    def _stopped(self, at: _Subscription) -> Mapping[str, str]:
        """Return the power state of every VM that does not run, by id; read once per subscription."""
        with at.lock:
            if at.stopped is None:
                found: dict[str, str] = {}
                with translated("the power states"):
                    for page in at.api.pages("virtualMachines", statusOnly="true"):
                        for vm in page:
                            state = _power(vm)
                            if state != "running":
                                found[str(vm.get("id", "")).lower()] = state
                at.stopped = found
            return at.stopped

    def _whole(self, subscription: str, part: str) -> Iterator[Facts | Gap]:
        at = self._subscription(subscription)
        source, now = f"{self.name}/{part}", self._now()
        compute = at.api.compute()
        with translated("the scale sets"):
            groups = list(compute.virtual_machine_scale_sets.list_all())
        for group in groups:
            size = (group.sku.name if group.sku else None) or ""
            region = (group.location or "").lower()
            gpus = self._gpus(at, region, size)
            if not gpus and not self._every_vm:
                continue
            capacity = group.sku.capacity if group.sku else None
            common: dict[str, Scalar] = {"cloud": "azure", "account": subscription, "region": region, "sku": size, "gpus": gpus}
            tags = tag_facts(group.tags or {})
            values: dict[str, Scalar] = {
                "group": (group.id or "").lower(),
                "name": short(group.name or ""),
                **common,
                "count": capacity,
                **tags,
            }
            yield Facts(values=values | {"form": "scale set"}, source=source, seen_at=now)
            mode = _word(group.properties.orchestration_mode) if group.properties else ""
            if mode != "Flexible":  # the VMs of a flexible set stand in the regions' lists
                yield from self._members(compute, group, common | tags, source, now)
        with translated("the capacity reservations"):
            for reserved in compute.capacity_reservation_groups.list_by_subscription():
                kept: dict[str, Scalar] = {"reservation": (reserved.id or "").lower(), "name": short(reserved.name or "")}
                yield Facts(values=kept | {"region": (reserved.location or "").lower()}, source=source, seen_at=now)

    def _members(self, compute: Any, group: Any, common: Mapping[str, Scalar], source: str, now: Instant) -> Iterator[Facts | Gap]:
        resource_group = str(group.id).split("/")[4]
        try:
            with translated(f"the instances of scale set {short(group.name)}"):
                listed = list(compute.virtual_machine_scale_set_vms.list(resource_group, group.name, expand="instanceView"))
        except FleetctlError as e:
            yield Gap(scope=short(str(group.id)), reason=e.message, source=self.name, code=e.code, mend=e.hint)
            return
        for vm in listed:
            statuses = vm.properties.instance_view.statuses if vm.properties and vm.properties.instance_view else ()
            codes = [str(s.code) for s in statuses or ()]
            computer = vm.properties.os_profile.computer_name if vm.properties and vm.properties.os_profile else ""
            values: dict[str, Scalar] = {"machine": str(vm.id).lower(), "name": _names(vm.name, computer), **common}
            values |= {"group": str(group.id).lower(), "priority": _priority(group), "state": _state(codes)}
            yield Facts(values=values, source=source, seen_at=now)

    def _gpus(self, at: _Subscription, region: str, size: str) -> int:
        for sizes in (at.sizes.get(region, {}), *at.sizes.values()):
            if size.casefold() in sizes:
                return int(sizes[size.casefold()]["gpus"])
        return 0


def _machine(vm: Mapping[str, Any], region: str, subscription: str, sizes: Mapping[str, Mapping[str, Any]]) -> dict[str, Scalar] | None:
    properties = vm.get("properties") or {}
    size = (properties.get("hardwareProfile") or {}).get("vmSize")
    id_ = vm.get("id")
    if not isinstance(size, str) or not isinstance(id_, str):
        return None
    row = sizes.get(size.casefold())
    zones = vm.get("zones") or ()
    tags = vm.get("tags")
    out: dict[str, Scalar] = {
        "machine": short(id_.lower()),
        "name": _names(vm.get("name"), (properties.get("osProfile") or {}).get("computerName")),
        "cloud": "azure",
        "account": subscription,
        "region": region,
        "zone": str(zones[0]) if zones else None,
        "sku": str(row["name"]) if row else short(size),
        "gpus": int(row["gpus"]) if row else 0,
        "priority": "spot" if properties.get("priority") in ("Spot", "Low") else "regular",
        **tag_facts(tags if isinstance(tags, dict) else {}),
    }
    group = (properties.get("virtualMachineScaleSet") or {}).get("id")
    if isinstance(group, str):
        out["group"] = short(group.lower())
    return {k: v for k, v in out.items() if v is not None}


def _names(*names: object) -> str:
    """Return the names of a machine, each once, separated by spaces; white space within a name becomes "_"."""
    return " ".join("_".join(short(n).split()) for n in dict.fromkeys(names) if isinstance(n, str) and n.strip())


def _power(vm: Mapping[str, Any]) -> str:
    view = (vm.get("properties") or {}).get("instanceView") or {}
    return _state([str(s.get("code")) for s in view.get("statuses") or () if isinstance(s, dict)])


def _state(codes: list[str]) -> str:
    power = next((c.removeprefix("PowerState/") for c in codes if c.startswith("PowerState/")), "")
    failed = any(c.startswith("ProvisioningState/failed") for c in codes)
    return "failed" if failed else power or "unknown"


def _priority(group: Any) -> str:
    profile = group.properties.virtual_machine_profile if group.properties else None
    return "spot" if profile is not None and _word(profile.priority) in ("Spot", "Low") else "regular"


def _word(value: object) -> str:
    """Return an enumeration's word; Azure's models give a member where they know it and text where they do not."""
    return str(getattr(value, "value", value) or "")


def _family(name: str) -> str:
    """Return a family's name as it compares: Azure writes the same one with other case and spaces."""
    return "".join(name.split()).casefold()


def _without_name(size: Mapping[str, Any]) -> dict[str, Scalar]:
    return {k: v for k, v in size.items() if k != "name"}
