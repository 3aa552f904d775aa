"""Inventory, use case layer: the hosts that Ansible may reach: declared ones and found ones. Never invents an address."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import HostId, PoolId, as_id
from fleetctl.domain.merge import Thing
from fleetctl.domain.pool import Host
from fleetctl.usecases.inventory_found import Found

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}\Z")
_TOLD: Mapping[str, str] = {
    "id": "found_id",
    "sku": "found_sku",
    "region": "found_region",
    "state": "found_state",
    "owner": "owner",
    "cost_centre": "cost_centre",
    "tenant": "tenant",
    "data_class": "data_class",
    "workload": "workload",
}
"""Facts that become variables of a found host; every one is written with Ansible's unsafe mark."""


def hosts_of(fleet: Fleet, found: Found) -> tuple[tuple[Host, ...], int]:
    """Return every host that can be addressed, and how many machines cannot.

    A found machine is in its declared pool, else in a pool named after its region and size; one that does not run is left out.
    """
    hosts = {h.id: h for h in fleet.hosts}
    known = {h.address for h in fleet.hosts}
    pools = {(p.cloud, p.region, p.sku, p.priority): p.pool for p in found.pools if p.pool}
    names = Counter(_first(m) for m in found.of_kind("machine"))
    without = 0
    for machine in found.of_kind("machine"):
        declared = machine.id in hosts or any(name in hosts for name in machine.also)
        if declared or machine.text("state") not in ("", "running"):
            continue
        address = next((a for a in [*machine.text("address").split(), *machine.text("name").split()] if _NAME.match(a)), "")
        if not address:
            without += 1
            continue
        if address in known:
            continue
        name = _first(machine)
        host = _host(machine, as_id(name if names[name] == 1 else f"{name} {machine.id}"), address, pools)
        hosts.setdefault(host.id, host)
    return tuple(hosts.values()), without


def _first(machine: Thing) -> str:
    return (machine.text("name").split() or [machine.id])[0]


def _host(machine: Thing, id_: str, address: str, pools: Mapping[tuple[str, str, str, str], str]) -> Host:
    key = (machine.text("cloud"), machine.text("region"), machine.text("sku"), machine.text("priority") or "regular")
    named = "-".join(part for part in ("found", machine.text("region"), machine.text("sku")) if part)
    facts = {"id": machine.id, **{k: machine.text(k) for k in _TOLD if k != "id"}}
    return Host(
        id=HostId(id_),
        pool=PoolId(pools.get(key) or as_id(named)),
        address=address,
        variables=tuple((_TOLD[k], v) for k, v in facts.items() if v),
    )
