"""Provision, adapters layer: what `show -json` and `output -json` hold, parsed strictly. Never keeps a value of a resource.

A state can be written by others: every string is hostile until it has the shape that fleetctl needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fleetctl.adapters.terraform.said import clean
from fleetctl.domain.ids import HostId, PoolId, is_id
from fleetctl.domain.pool import Host
from fleetctl.domain.provision import ResourceChange
from fleetctl.errors import ProvisionFailed

_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252})\Z")
_USER = re.compile(r"([a-z_][a-z0-9_-]{0,31})?\Z")
_VARIABLE = re.compile(r"(?!ansible_)[a-z][a-z0-9_]{0,63}\Z")
_MOST_VARIABLES = 64
_LONGEST_VALUE = 4096
_GROUPS = frozenset({"aws_autoscaling_group"})
_HOST_KEYS = frozenset({"id", "pool", "address", "connection", "user", "variables"})


def changes_of(shown: str, pool: PoolId) -> tuple[ResourceChange, ...]:
    """Return what a plan would do, as `terraform show -json PLANFILE` tells it; values are dropped at once.

    Args:
        pool: whose state it is; a resource that carries another pool's tag is given to that one.

    What a plan does besides resource changes (it puts some off, or invokes actions) is an action of its own, which no check lets pass.

    Raises:
        ProvisionFailed: provision.plan_failed where it has not the shape of a plan, or is none that was finished.
    """
    document = _document(shown, "a shown plan", "provision.plan_failed")
    if document.get("errored") not in (None, False):
        raise _refused("provision.plan_failed", "the plan was not finished")
    changes = [_change(item, pool) for item in _list(document, "resource_changes", "provision.plan_failed")]
    for item in _list(document, "deferred_changes", "provision.plan_failed"):
        later = _change(item.get("resource_change") if isinstance(item, dict) else None, pool)
        changes.append(replace(later, actions=("defer", *later.actions)))
    for item in _list(document, "action_invocations", "provision.plan_failed"):
        address, kind = (item.get(k) if isinstance(item, dict) else None for k in ("address", "type"))
        changes.append(ResourceChange(address=clean(str(address)), type=clean(str(kind)), actions=("invoke",), pool=pool))
    return tuple(changes)


def drift_of(shown: str, pool: PoolId) -> tuple[ResourceChange, ...]:
    """Return what others changed outside Terraform, from the same document as `changes_of`."""
    document = _document(shown, "a shown plan", "provision.plan_failed")
    return tuple(_change(item, pool) for item in _list(document, "resource_drift", "provision.plan_failed"))


def outputs_differ(shown: str) -> bool:
    """Tell whether apply would write other outputs than the state has, from the same document as `changes_of`."""
    found = _document(shown, "a shown plan", "provision.plan_failed").get("output_changes")
    rows = found.values() if isinstance(found, dict) else ()
    return any(isinstance(row, dict) and row.get("actions") != ["no-op"] for row in rows)


def has_resources(shown: str) -> bool:
    """Tell whether the state that the plan was made from holds any resource."""
    found: object = _document(shown, "a shown plan", "provision.plan_failed")
    for key in ("prior_state", "values", "root_module"):
        found = found.get(key) if isinstance(found, dict) else None
    return isinstance(found, dict) and bool(found.get("resources") or found.get("child_modules"))


def state_of(pulled: str) -> tuple[str, int]:
    """Return lineage and serial of what `state pull` gave; ("", 0) where there is no state yet."""
    if not pulled.strip():
        return "", 0
    document = _document(pulled, "the state", "provision.plan_failed")
    lineage, serial = document.get("lineage"), document.get("serial")
    if not isinstance(lineage, str) or type(serial) is not int:
        raise _refused("provision.plan_failed", "the state has no lineage and serial")
    return clean(lineage), serial


def ids_of(pulled: str) -> frozenset[str]:
    """Return the ids, lower case, of what the state holds, from what `state pull` gave."""
    if not pulled.strip():
        return frozenset()
    document = _document(pulled, "the state", "provision.plan_failed")
    found: set[str] = set()
    for resource in _list(document, "resources", "provision.plan_failed"):
        instances = resource.get("instances", []) if isinstance(resource, dict) and resource.get("mode") == "managed" else []
        for instance in instances if isinstance(instances, list) else []:
            attributes = instance.get("attributes") if isinstance(instance, dict) else None
            name = attributes.get("id") if isinstance(attributes, dict) else None
            if isinstance(name, str) and name.isprintable():
                found.add(name.lower())
    return frozenset(found)


def is_tainted(pulled: str) -> bool:
    """Tell whether the state holds anything whose making never finished, from what `state pull` gave."""
    document = _document(pulled, "the state", "provision.plan_failed") if pulled.strip() else {}
    instances = (i for r in _list(document, "resources", "provision.plan_failed") if isinstance(r, dict) for i in r.get("instances") or [])
    return any(isinstance(i, dict) and i.get("status") == "tainted" for i in instances)


def hosts_of(outputs: str, pool: PoolId) -> tuple[Host, ...]:
    """Return the output `hosts` of `terraform output -json`, in its order; () where the state has none.

    Raises:
        ProvisionFailed: provision.outputs_refused names the first value that is not what it should be.
    """
    document = _document(outputs, f"the outputs of pool {pool}", _BAD)
    if "hosts" not in document:
        return ()
    output = document["hosts"]
    value = output.get("value") if isinstance(output, dict) else None
    if not isinstance(value, list):
        raise _refused(_BAD, f"output hosts of pool {pool} is not a list")
    hosts = tuple(_host(item, pool, place) for place, item in enumerate(value))
    if len({host.id for host in hosts}) != len(hosts):
        raise _refused(_BAD, f"output hosts of pool {pool} names a host twice")
    return hosts


_BAD = "provision.outputs_refused"


def _host(item: object, pool: PoolId, place: int) -> Host:
    where = f"output hosts[{place}] of pool {pool}"
    if not isinstance(item, dict) or set(item) != _HOST_KEYS:
        raise _refused(_BAD, f"{where} has not exactly the keys {', '.join(sorted(_HOST_KEYS))}")
    identity, address, user, connection = (item[k] for k in ("id", "address", "user", "connection"))
    if not isinstance(identity, str) or not is_id(identity):
        raise _refused(_BAD, f"{where}: id {identity!r} is not a name")
    if item["pool"] != pool:
        raise _refused(_BAD, f"{where}: pool {item['pool']!r} is another one")
    if not isinstance(address, str) or not _ADDRESS.match(address):
        raise _refused(_BAD, f"{where}: address {address!r} is not a host name or IP address")
    if not isinstance(user, str) or not _USER.match(user):
        raise _refused(_BAD, f"{where}: user {user!r} is not a login name")
    if connection != "ssh" and connection != "local":
        raise _refused(_BAD, f"{where}: connection {connection!r} is neither ssh nor local")
    return Host(
        id=HostId(identity),
        pool=pool,
        address=address,
        connection="ssh" if connection == "ssh" else "local",
        user=user,
        variables=tuple(_variables(item["variables"], where)),
    )


def _variables(value: object, where: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict) or len(value) > _MOST_VARIABLES:
        raise _refused(_BAD, f"{where}: variables is not an object of at most {_MOST_VARIABLES} strings")
    for name in sorted(value):
        text = value[name]
        if not _VARIABLE.match(name):
            raise _refused(_BAD, f"{where}: variable {name!r} may not be set from a state")
        if not isinstance(text, str) or len(text) > _LONGEST_VALUE or (text and not text.isprintable()):
            raise _refused(_BAD, f"{where}: variable {name} is not printable text of at most {_LONGEST_VALUE} characters")
        yield name, text


def _change(item: object, pool: PoolId) -> ResourceChange:
    if not isinstance(item, dict):
        raise _refused("provision.plan_failed", "a resource change is not an object")
    change = item.get("change")
    address, kind, reason = item.get("address"), item.get("type"), item.get("action_reason", "")
    actions = change.get("actions") if isinstance(change, dict) else None
    if not isinstance(address, str) or not isinstance(kind, str) or not isinstance(reason, str) or not address.isprintable():
        raise _refused("provision.plan_failed", f"a resource change has no usable address and type ({address!r}, {kind!r})")
    if not isinstance(actions, list) or not all(isinstance(a, str) for a in actions):
        raise _refused("provision.plan_failed", f"{clean(address)} has no list of actions")
    owner = _tagged(change) if isinstance(change, dict) else None
    imports = ("import",) if isinstance(change, dict) and change.get("importing") is not None else ()
    return ResourceChange(
        address=clean(address),
        type=clean(kind),
        actions=(*imports, *actions),
        pool=owner or pool,
        reason=clean(reason),
        machines=_kept(change, "after") - _kept(change, "before") if kind in _GROUPS and isinstance(change, dict) else 0,
        changed=tuple(clean(name) for name in _differing(change)) if "update" in actions and isinstance(change, dict) else (),
    )


def _differing(change: Mapping[str, object]) -> Iterator[str]:
    """Yield the attributes that differ before and after, by name; what is only known later is none of them."""
    before, after, later = (value if isinstance(value := change.get(k), dict) else {} for k in ("before", "after", "after_unknown"))
    for name in sorted({str(n) for n in (*before, *after)}):
        if later.get(name) is not True and before.get(name) != after.get(name):
            yield name


def _kept(change: Mapping[str, object], side: str) -> int:
    """Return how many machines a group keeps before or after a change."""
    values = change.get(side)
    sizes = [values.get(k) for k in ("desired_capacity", "max_size")] if isinstance(values, dict) else []
    return max((int(n) for n in sizes if isinstance(n, (int, float)) and not isinstance(n, bool)), default=0)


def _tagged(change: Mapping[str, object]) -> PoolId | None:
    """Return the pool that a resource names: `input.pool` in the lab, a tag in a cloud; what it was counts before what it will be."""
    for side in ("before", "after"):
        values = change.get(side)
        if not isinstance(values, dict):
            continue
        for holder, key in (("input", "pool"), ("tags", "fleetctl-pool"), ("tags", "fleetctl_pool")):
            found = values.get(holder)
            name = found.get(key) if isinstance(found, dict) else None
            if isinstance(name, str) and is_id(name):
                return PoolId(name)
    return None


def _document(text: str, what: str, code: str) -> Mapping[str, object]:
    try:
        value = json.loads(text)
    except ValueError as e:
        raise _refused(code, f"{what} is not JSON") from e
    if not isinstance(value, dict):
        raise _refused(code, f"{what} is not an object")
    return value


def _list(document: Mapping[str, object], key: str, code: str) -> list[object]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise _refused(code, f"{key} is not a list")
    return value


def _refused(code: str, why: str) -> ProvisionFailed:
    return ProvisionFailed(code, clean(why), hint="Look at the pool's state: somebody else may have written it. Run: fleetctl doctor")
