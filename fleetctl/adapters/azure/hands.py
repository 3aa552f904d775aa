"""Migrate, adapters layer: the autoscale settings of a scale set, their minimums, and its owners' tags. Never changes a capacity itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Protocol

from fleetctl.domain.holds import Standing
from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Gap
from fleetctl.domain.provision import Owner
from fleetctl.domain.tags import short
from fleetctl.errors import InventoryFailed

INSIGHTS_VERSION = "2022-10-01"
COMPUTE_VERSION = "2024-11-01"
"""Source: specification/monitor Microsoft.Insights/stable and specification/compute ComputeRP/stable, read 2026-11-30."""
SOURCE = "azure"
_NAME = re.compile(r"[A-Za-z0-9._()-]{1,90}\Z")
_REF = re.compile(r"([A-Za-z0-9._() -]{1,260})#(\d{1,2})\Z")


class Arm(Protocol):
    """Calls of one subscription's management API."""

    def call(self, method: str, path: str, version: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer's JSON. Raises CredentialsMissing, InventoryFailed."""
        ...


class VmssHands:
    """The autoscale settings whose target is one scale set; each profile has a minimum of its own.

    Args:
        arm: makes the connection; place: "RESOURCE-GROUP/SCALE-SET".
    """

    def __init__(self, arm: Callable[[], Arm], pool: PoolId, place: str) -> None:
        group, _, name = place.partition("/")
        if not _NAME.match(group) or not _NAME.match(name):
            raise InventoryFailed(
                "inventory.azure", f"{place[:80]!r} is no RESOURCE-GROUP/SCALE-SET.", hint="Mend: settings pool.NAME.owners"
            )
        self._arm, self._pool, self._group, self._name = arm, pool, group, name

    def find(self) -> tuple[Owner | Gap, ...]:
        """List the profiles that keep a minimum, and whose the scale set is."""
        arm = self._arm()
        machines = arm.call("GET", f"{self._providers}/Microsoft.Compute/virtualMachineScaleSets/{self._name}", COMPUTE_VERSION)
        size = int((machines.get("sku") or {}).get("capacity") or 0)
        found: list[Owner | Gap] = []
        for setting in self._settings(arm):
            if not (setting.get("properties") or {}).get("enabled", True):
                continue
            for n, profile in enumerate(_profiles(setting)):
                found.append(self._owner(str(setting.get("name")), n, profile, size))
        tags = {str(k): str(v) for k, v in (machines.get("tags") or {}).items()}
        found.extend(Owner(name=name, kind="gitops", pool=self._pool) for name in _owner_names(tags))
        return tuple(found)

    def standing(self, ref: str) -> Standing:
        """Return a profile's minimum; Azure does not tell here who set it."""
        name, n = self._parsed(ref)
        setting = next((s for s in self._settings(self._arm()) if s.get("name") == name), None)
        profiles = _profiles(setting) if setting is not None else []
        return Standing(minimum=_number(profiles[n], "minimum") if n < len(profiles) else None)

    def set_minimum(self, ref: str, was: int, to: int, default: int | None = None) -> bool:
        """Write the setting as it was read, with this profile's minimum changed, where it still is `was`; a default that we raised with it
        is put back."""
        name, n = self._parsed(ref)
        path = f"{self._providers}/Microsoft.Insights/autoscalesettings/{name}"
        arm = self._arm()
        whole = deepcopy(arm.call("GET", path, INSIGHTS_VERSION))
        profiles = _profiles(whole)
        if n >= len(profiles) or _number(profiles[n], "minimum") != was:
            return False
        capacity = profiles[n]["capacity"]
        capacity["minimum"] = str(to)
        if default is not None and _number(profiles[n], "default") == was:
            capacity["default"] = str(default)
        if (_number(profiles[n], "default") or 0) < to:  # Azure wants minimum <= default <= maximum
            capacity["default"] = str(to)
        kept: dict[str, Any] = {k: v for k, v in whole.items() if k in ("location", "tags", "properties")}
        arm.call("PUT", path, INSIGHTS_VERSION, kept)
        return True

    @property
    def _providers(self) -> str:
        return f"resourceGroups/{self._group}/providers"

    def _settings(self, arm: Arm) -> Iterator[dict[str, Any]]:
        wanted = f"/resourcegroups/{self._group}/providers/microsoft.compute/virtualmachinescalesets/{self._name}".casefold()
        for setting in arm.call("GET", f"{self._providers}/Microsoft.Insights/autoscalesettings", INSIGHTS_VERSION).get("value", ()):
            target = str((setting.get("properties") or {}).get("targetResourceUri") or "") if isinstance(setting, dict) else ""
            if target.casefold().endswith(wanted):
                yield setting

    def _owner(self, setting: str, n: int, profile: Mapping[str, Any], size: int) -> Owner:
        return Owner(
            name=f"Azure autoscale setting {short(setting)} ({short(str(profile.get('name')))})",
            kind="autoscaler",
            pool=self._pool,
            ref=f"{setting}#{n}",
            minimum=_number(profile, "minimum"),
            maximum=_number(profile, "maximum"),
            size=size,
            default=_number(profile, "default"),
        )

    def _parsed(self, ref: str) -> tuple[str, int]:
        found = _REF.match(ref)
        if found is None:
            raise InventoryFailed("inventory.azure", f"{ref[:80]!r} names no autoscale profile.")
        return found[1], int(found[2])


def _profiles(setting: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = (setting.get("properties") or {}).get("profiles")
    return [p for p in found if isinstance(p, dict) and isinstance(p.get("capacity"), dict)] if isinstance(found, list) else []


def _number(profile: Mapping[str, Any], key: str) -> int | None:
    text = str(profile["capacity"].get(key, ""))
    return int(text) if text.isdigit() else None


def _owner_names(tags: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(tags.items()):
        word = "".join(c for c in key.casefold() if c.isalnum())
        if word.startswith("aksmanaged"):
            yield "AKS"
            return
        said = (
            f"Terraform {value}" if word.startswith("terraform") else value if word in ("managedby", "provisionedby", "createdby") else ""
        )
        if any(t in said.casefold() for t in ("terraform", "opentofu", "pulumi", "bicep", "crossplane", "ansible")):
            yield short(said)
