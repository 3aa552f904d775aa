"""What a double of Azure's management API has to show: VMs, scale sets, sizes and usages of one subscription, each page made when asked.

Bodies are shaped on the published examples of Microsoft.Compute (VirtualMachine_ListAll, ListAvailableResourceSkusForARegion,
Usage_List, VirtualMachineScaleSet_ListAll): own text, same fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
SIZES = ("Standard_ND96isr_H100_v5", "Standard_ND96isr_MI300X_v5", "Standard_NC80adis_H100_v5", "Standard_D4s_v5")
FAMILY = {
    "Standard_ND96isr_H100_v5": ("standardNDSH100v5Family", 8, 96),
    "Standard_ND96isr_MI300X_v5": ("standardNDISv5MI300XFamily", 8, 96),
    "Standard_NC80adis_H100_v5": ("StandardNCadsH100v5Family", 2, 80),
    "Standard_D4s_v5": ("standardDSv5Family", 0, 4),
}

Tags = Callable[[str, int], Mapping[str, str]]


def _plain_tags(location: str, n: int) -> Mapping[str, str]:
    return {"team": f"team-{n % 7}", "Cost-Center": f"CC{n % 11:03}", "workload": f"model-{n % 50}"}


@dataclass(slots=True, kw_only=True)
class Estate:
    """What stands in the subscription.

    Args:
        regions: VMs per region; page: VMs per page; name_of, tags_of: of VM n in a region.
        changed: VM ids whose power state is not "running"; autoscale: settings by name, as Microsoft.Insights gives them.
    """

    regions: dict[str, int]
    page: int = 250
    name_of: Callable[[str, int], str] = field(default=lambda location, n: f"gpu-{location}-{n}")
    size_of: Callable[[int], str] = field(default=lambda n: SIZES[n % 2])
    tags_of: Tags = field(default=_plain_tags)
    scale_sets: dict[str, int] = field(default_factory=dict)
    stopped: set[str] = field(default_factory=set)
    autoscale: dict[str, dict[str, Any]] = field(default_factory=dict)
    scale_set_tags: dict[str, str] = field(default_factory=dict)

    def vm_id(self, location: str, n: int) -> str:
        """Return the ARM id of VM n."""
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-{location}"
        return f"{group}/providers/Microsoft.Compute/virtualMachines/{self.name_of(location, n)}"

    def vms(self, location: str, start: int) -> tuple[list[str], int | None]:
        """Return one page of VMs as JSON texts, and where the next begins."""
        total = self.regions.get(location, 0)
        end = min(start + self.page, total)
        return [self._vm(location, n) for n in range(start, end)], end if end < total else None

    def statuses(self, start: int) -> tuple[list[str], int | None]:
        """Return one page of all VMs' run-time status."""
        out: list[str] = []
        seen = 0
        for location, count in self.regions.items():
            for n in range(max(0, start - seen), count):
                if len(out) == self.page:
                    return out, start + self.page
                out.append(self._status(location, n))
            seen += count
        return out, None

    def _vm(self, location: str, n: int) -> str:
        name = json.dumps(self.name_of(location, n))[1:-1]
        id_ = json.dumps(self.vm_id(location, n))[1:-1]
        nic = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-{location}/providers/Microsoft.Network/networkInterfaces/nic-{n}"
        spot = ',"priority":"Spot","evictionPolicy":"Deallocate","billingProfile":{"maxPrice":-1}' if n % 10 == 9 else ""
        image = '{"publisher":"microsoft-dsvm","offer":"ubuntu-hpc","sku":"2204","version":"latest","exactVersion":"22.04.2026080101"}'
        disk = (
            f'{{"osType":"Linux","name":"os-{n}","createOption":"FromImage","caching":"ReadOnly","diffDiskSettings":{{"option":"Local",'
            f'"placement":"NvmeDisk"}},"managedDisk":{{"storageAccountType":"Premium_LRS","id":"{id_}-os"}},"diskSizeGB":128}}'
        )
        linux = (
            '{"disablePasswordAuthentication":true,"provisionVMAgent":true,'
            '"patchSettings":{"patchMode":"ImageDefault","assessmentMode":"ImageDefault"}}'
        )
        return (
            f'{{"name":"{name}","id":"{id_}","type":"Microsoft.Compute/virtualMachines","location":"{location}","etag":"\\"{n}\\"",'
            f'"tags":{json.dumps(self.tags_of(location, n))},"zones":["{n % 3 + 1}"],"properties":{{'
            f'"vmId":"{n:08d}-0000-4000-8000-000000000000","hardwareProfile":{{"vmSize":"{self.size_of(n)}"}},'
            f'"storageProfile":{{"imageReference":{image},"osDisk":{disk},"dataDisks":[]}},'
            f'"osProfile":{{"computerName":"{name}","adminUsername":"azureuser","linuxConfiguration":{linux},"secrets":[],'
            f'"allowExtensionOperations":true}},"networkProfile":{{"networkInterfaces":[{{"id":"{nic}","properties":{{"primary":true}}}}]}},'
            f'"diagnosticsProfile":{{"bootDiagnostics":{{"enabled":true}}}},"scheduledEventsProfile":{{"terminateNotificationProfile":'
            f'{{"notBeforeTimeout":"PT10M","enable":true}}}}{spot},"provisioningState":"Succeeded","timeCreated":"2026-05-04T09:10:11.12+00:00"}}}}'
        )

    def _status(self, location: str, n: int) -> str:
        id_, name = self.vm_id(location, n), json.dumps(self.name_of(location, n))
        power = "deallocated" if id_ in self.stopped else "running"
        made = '{"code":"ProvisioningState/succeeded","level":"Info","displayStatus":"Ready","time":"2026-05-04T09:12:00+00:00"}'
        return (
            f'{{"name":{name},"id":{json.dumps(id_)},"location":"{location}","properties":{{"instanceView":{{"computerName":{name},'
            f'"osName":"ubuntu","osVersion":"22.04","vmAgent":{{"vmAgentVersion":"2.14.0.1","statuses":[{made}]}},"statuses":[{made},'
            f'{{"code":"PowerState/{power}","level":"Info","displayStatus":"VM {power}"}}]}}}}}}'
        )

    def skus(self, location: str | None) -> list[dict[str, Any]]:
        """Return the sizes of one region or of all; MI300X is restricted in the last region."""
        places = [location] if location else list(self.regions)
        last = list(self.regions)[-1] if self.regions else ""
        return [
            _sku(size, place, restricted=place == last and "MI300X" in size) for place in places for size in SIZES if place in self.regions
        ]

    def usages(self, location: str) -> list[dict[str, Any]]:
        """Return quota rows of one region."""
        used = 96 * self.regions.get(location, 0)
        rows = [("cores", "Total Regional vCPUs", used, used + 960)]
        rows += [("lowPriorityCores", "Total Regional Low-priority vCPUs", 0, 100)]
        rows += [(family, family, used // 2, used) for family, gpus, _ in FAMILY.values() if gpus]
        return [
            {"unit": "Count", "currentValue": u, "limit": top, "name": {"value": v, "localizedValue": text}} for v, text, u, top in rows
        ]

    def scale_set(self, name: str, location: str) -> dict[str, Any]:
        """Return one scale set."""
        return {
            "name": name,
            "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg-{location}/providers/Microsoft.Compute/virtualMachineScaleSets/{name}",
            "location": location,
            "tags": {"owner": "platform", **self.scale_set_tags},
            "sku": {"name": SIZES[0], "tier": "Standard", "capacity": self.scale_sets[name]},
            "properties": {
                "orchestrationMode": "Uniform",
                "provisioningState": "Succeeded",
                "singlePlacementGroup": False,
                "upgradePolicy": {"mode": "Manual"},
                "virtualMachineProfile": {"priority": "Regular", "storageProfile": {}},
            },
        }

    def scale_set_vms(self, name: str, location: str) -> list[dict[str, Any]]:
        """Return its instances, with their run-time status."""
        base = self.scale_set(name, location)["id"]
        return [
            {
                "name": f"{name}_{n}",
                "id": f"{base}/virtualMachines/{n}",
                "instanceId": str(n),
                "location": location,
                "sku": {"name": SIZES[0], "tier": "Standard"},
                "properties": {
                    "vmId": f"{n:08d}-1111-4000-8000-000000000000",
                    "osProfile": {"computerName": f"{name}{n:06}"},
                    "provisioningState": "Succeeded",
                    "instanceView": {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/running"}]},
                },
            }
            for n in range(self.scale_sets[name])
        ]


def _sku(size: str, location: str, *, restricted: bool) -> dict[str, Any]:
    family, gpus, cores = FAMILY[size]
    capabilities = {"vCPUs": str(cores), "MemoryGB": str(cores * 19), "LowPriorityCapable": "True", "PremiumIO": "True"}
    if gpus:
        capabilities["GPUs"] = str(gpus)
    values = [
        {
            "type": "Location",
            "values": [location],
            "restrictionInfo": {"locations": [location]},
            "reasonCode": "NotAvailableForSubscription",
        }
    ]
    return {
        "resourceType": "virtualMachines",
        "name": size,
        "tier": "Standard",
        "size": size.removeprefix("Standard_"),
        "family": family,
        "locations": [location],
        "locationInfo": [{"location": location, "zones": ["1", "2", "3"], "zoneDetails": []}],
        "capabilities": [{"name": k, "value": v} for k, v in capabilities.items()],
        "restrictions": values if restricted else [],
    }
