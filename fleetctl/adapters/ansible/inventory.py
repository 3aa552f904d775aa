"""Inventory and configure, adapter layer: makes the Ansible inventory from fleet and hosts. Never reads a file, never asks a cloud."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleetctl.adapters.ansible import unsafe
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import PoolId, is_id
from fleetctl.domain.pool import Host, Vendor
from fleetctl.errors import ConfigInvalid

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9][A-Za-z0-9.-]{0,252}))(?::(?P<port>[0-9]{1,5}))?\Z")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\Z")
_BARE_SIX = re.compile(r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f.]{0,15}){2,8}\Z")
_RESERVED = frozenset(
    {"port", "environment", "hosts", "groups", "vars", "hostvars", "inventory_hostname", "omit", "no_log", "become", "when", "register"}
)

Variables = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlace:
    """How hosts of connection "local" are served.

    Args:
        python: interpreter for Ansible's modules; tmp: folder for their files, so that nothing lands in the user's home.
    """

    python: str
    tmp: str


def inventory_yaml(
    hosts: Sequence[Host],
    *,
    fleet: Fleet | None = None,
    vendors: Mapping[PoolId, Vendor] | None = None,
    common: Variables | None = None,
    by_host: Mapping[str, Variables] | None = None,
    local: LocalPlace | None = None,
) -> str:
    """Write the inventory as YAML in which every host's variables are marked unsafe.

    Args:
        hosts: each becomes a member of `pool_<pool>`; with `fleet` or `vendors` also of `vendor_<vendor>`.
        common: variables of every host; by_host: of one host, by its id; they win over the host's own.
        local: what serves hosts of connection "local".

    Raises:
        ConfigInvalid: config.host (id, address or user), config.variable (its name), config.value.
    """
    groups, rows = _groups(hosts, fleet, vendors), _rows(hosts, fleet, common, by_host, local)
    children: dict[str, object] = {name: {"hosts": {member: {} for member in members}} for name, members in groups.items()}
    return unsafe.to_yaml({"all": {"hosts": {h: unsafe.Unsafe(row) for h, row in rows.items()}, "children": children}})


def inventory_list(
    hosts: Sequence[Host],
    *,
    fleet: Fleet | None = None,
    common: Variables | None = None,
    by_host: Mapping[str, Variables] | None = None,
    local: LocalPlace | None = None,
) -> str:
    """Write the inventory as the answer of a dynamic inventory to `--list`, every string of a host marked unsafe.

    Raises:
        ConfigInvalid: as `inventory_yaml`.
    """
    groups, rows = _groups(hosts, fleet), _rows(hosts, fleet, common, by_host, local)
    return unsafe.to_json(
        {
            "_meta": {"hostvars": {h: unsafe.Unsafe(row) for h, row in rows.items()}},
            # Group and host names are validated identifiers; Ansible wants them as plain strings.
            "all": {"children": list(groups)},
            **{name: {"hosts": members} for name, members in groups.items()},
        }
    )


def group_of(pool: PoolId) -> str:
    """Return the group name of a pool; Ansible's names have no '-', and ids have no '_', so it is unique."""
    return "pool_" + pool.replace("-", "_")


def require_variable(name: str, *, of: str) -> str:
    """Return `name` if it may be a variable of a host or play.

    Raises:
        ConfigInvalid: config.variable; `ansible_*` and Ansible's own words would change how a host is reached.
    """
    if not _NAME.match(name) or name in _RESERVED or name.startswith("ansible_"):
        raise ConfigInvalid(
            "config.variable", f"{of} has the variable {name!r}, which is no name for one", hint="Use a-z, 0-9 and '_', not ansible_*."
        )
    return name


def _groups(hosts: Sequence[Host], fleet: Fleet | None, given: Mapping[PoolId, Vendor] | None = None) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    vendors = {p.id: p.vendor for p in fleet.pools} if fleet else dict(given or {})
    for h in hosts:
        groups.setdefault(group_of(h.pool), []).append(h.id)
        if h.pool in vendors:
            groups.setdefault("vendor_" + vendors[h.pool], []).append(h.id)
    return dict(sorted(groups.items()))


def _rows(
    hosts: Sequence[Host],
    fleet: Fleet | None,
    common: Variables | None,
    by_host: Mapping[str, Variables] | None,
    local: LocalPlace | None,
) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = {}
    for h in hosts:
        if not is_id(h.id) or not is_id(h.pool) or h.id in rows:
            raise ConfigInvalid("config.host", f"host {h.id!r} of pool {h.pool!r} has no usable name, or two have the same")
        row: dict[str, object] = {**_reach(h, local), "fleetctl_pool": str(h.pool)}
        pool = next((p for p in fleet.pools if p.id == h.pool), None) if fleet else None
        if pool is not None:
            row |= {"fleetctl_vendor": str(pool.vendor), "fleetctl_sku": pool.sku, "fleetctl_region": pool.region}
        row |= {require_variable(k, of=f"host {h.id}"): v for k, v in h.variables}
        for more in (common or {}, (by_host or {}).get(h.id, {})):
            row |= {require_variable(k, of=f"host {h.id}"): v for k, v in more.items()}
        rows[h.id] = row
    return rows


def _reach(h: Host, local: LocalPlace | None) -> dict[str, object]:
    if h.connection == "local":
        place: dict[str, object] = {"ansible_python_interpreter": local.python, "ansible_remote_tmp": local.tmp} if local else {}
        return {"ansible_connection": "local", **place}
    found = None if _BARE_SIX.match(h.address) else _ADDRESS.match(h.address)
    if not found and not _BARE_SIX.match(h.address):
        raise ConfigInvalid(
            "config.host",
            f"host {h.id} has the address {h.address!r}, which is none",
            hint="Use a name or an IP address, with :port where it is not 22.",
        )
    row: dict[str, object] = {"ansible_connection": "ssh", "ansible_host": (found["six"] or found["name"]) if found else h.address}
    if found and found["port"]:
        if not 1 <= int(found["port"]) <= 65535:
            raise ConfigInvalid("config.host", f"host {h.id} has the port {found['port']}, which is not 1 to 65535")
        row["ansible_port"] = int(found["port"])
    if h.user:
        if not _USER.match(h.user):
            raise ConfigInvalid("config.host", f"host {h.id} has the user {h.user!r}, which is no login name")
        row["ansible_user"] = h.user
    return row
