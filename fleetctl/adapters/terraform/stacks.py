"""Provision, adapters layer: what each stack of ours is given for a pool. Never holds a secret."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fleetctl.adapters.terraform.modules import Backend, check_backend
from fleetctl.domain.capacity import Candidate
from fleetctl.domain.ids import PoolId
from fleetctl.domain.pool import PoolSpec
from fleetctl.errors import ConfigInvalid
from fleetctl.planning.capacity import places_of

_SUBSCRIPTION = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


def lab_variables(
    lab_root: Path, python: str, *, delay_s: float = 0.0, network: str = "", tags: Mapping[str, str] | None = None
) -> Callable[[PoolSpec], Mapping[str, object]]:
    """Return what `terraform/stacks/lab` is given, whose hosts are emulated or in systemd-nspawn.

    Args:
        lab_root: folder that holds one folder per host, absolute.
        python: interpreter that has fleetctl installed, absolute.
        delay_s: emulated boot time of a host, 0 to 600 seconds.
        network: first three numbers of the addresses of real hosts, empty for emulated ones.
    """

    def of(spec: PoolSpec) -> Mapping[str, object]:
        return {
            "pool_id": spec.pool,
            "vendor": spec.vendor,
            "sku": spec.sku,
            "region": spec.region,
            "host_count": spec.count,
            "hold": spec.hold,
            "lab_root": str(lab_root),
            "python": python,
            "delay_s": delay_s,
            **({"network": network} if network else {}),
            "tags": {"fleetctl-pool": spec.pool, **(tags or {})},
        }

    return of


_VARIABLE = re.compile(r'^variable "([a-z0-9_]+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_DEFAULT = re.compile(r"^\s+default\s*=", re.MULTILINE)


def check_variables(stack_folder: Path, stack: str, pool: PoolId, given: Mapping[str, object]) -> None:
    """Refuse settings that a stack does not know, which Terraform would pass over, and name those that it needs and does not get.

    Raises:
        ConfigInvalid: config.terraform_variable, with every mistake.
    """
    text = "\n".join(path.read_text() for path in sorted(stack_folder.glob("*.tf")))
    known = {m[1]: _DEFAULT.search(m[2]) is None for m in _VARIABLE.finditer(text)}
    found = []
    for name in sorted(set(given) - set(known)):
        near = difflib.get_close_matches(name, known, 1)
        found.append(f"pool.{pool}.{name}: stack {stack} has no such variable" + (f"; is it {near[0]}?" if near else ""))
    missing = sorted(name for name, is_needed in known.items() if is_needed and name not in given)
    found += [f"terraform.{stack}.{name}, or pool.{pool}.{name}: is not set, and stack {stack} needs it" for name in missing]
    if found:
        text = f"the settings of pool {pool} do not fit stack {stack}: {found[0]}."
        hint = f"Change the fleet file (variables of stack {stack}: terraform/stacks/{stack}/README.md), then run: fleetctl provision"
        raise ConfigInvalid("config.terraform_variable", text, hint=hint, details=tuple(found) if len(found) > 1 else ())


OWNED = frozenset({"pool_id", "vendor", "sku", "region", "zone", "host_count", "priority", "hold", "tags", "subscription_id"})
"""Variables that fleetctl itself gives; settings may not set them."""


def cloud_variables(stack: str, settings: Mapping[str, str]) -> Callable[[PoolSpec], Mapping[str, object]]:
    """Return what `terraform/stacks/azure` or `aws` is given.

    Args:
        settings: of the fleet file: azure.subscription_id; terraform.azure.VARIABLE or terraform.aws.VARIABLE for every pool of a stack;
            pool.NAME.VARIABLE for one pool. A value that is JSON is given as what it says, anything else as text.

    Raises:
        ConfigInvalid: config.terraform_variable (by the function returned), for a variable that fleetctl owns.
    """

    def of(spec: PoolSpec) -> Mapping[str, object]:
        given: dict[str, object] = {}
        for prefix in (f"terraform.{stack}.", f"pool.{spec.pool}."):
            for key, text in settings.items():
                name = key.removeprefix(prefix)
                if name == key or name in PLACE_SETTINGS:
                    continue
                if name in OWNED:
                    raise ConfigInvalid(
                        "config.terraform_variable",
                        f"{key}: fleetctl gives {name} itself.",
                        hint="Remove it from the fleet file",
                    )
                given[name] = _value(text)
        tags = {"fleetctl-pool": spec.pool, **({"fleetctl-intent": spec.intent} if spec.intent else {})}
        own: dict[str, object] = {
            "pool_id": spec.pool,
            "vendor": spec.vendor,
            "sku": spec.sku,
            "region": spec.region,
            "zone": spec.zone,
            "host_count": spec.count,
            "priority": spec.priority,
            "hold": spec.hold,
            "tags": tags,
        }
        if stack == "azure":
            own["subscription_id"] = subscription_of(settings)
        return {**given, **own}

    return of


def subscription_of(settings: Mapping[str, str]) -> str:
    """Return the subscription that pools on Azure are made in.

    Raises:
        ConfigInvalid: config.subscription, where the setting azure.subscription_id is missing or is none.
    """
    found = settings.get("azure.subscription_id", "")
    if not _SUBSCRIPTION.match(found):
        what = f"is {found[:60]!r}, which is no subscription's id" if found else "is not set"
        text = f"the setting azure.subscription_id {what}; pools on Azure are made in it."
        raise ConfigInvalid("config.subscription", text, hint="Set it in the fleet file to what `az account show --query id` prints")
    return found


PLACE_SETTINGS = frozenset({"zones", "sizes", "regions", "on_demand", "partial", "notices", "nodes"})
"""Settings of a pool (pool.NAME.zones, ...) that are no variables: where else it may be made, how it tells of its end, what it becomes."""


def places_from(spec: PoolSpec, settings: Mapping[str, str]) -> tuple[Candidate, ...]:
    """Return the places that the owner allows for a pool, what was asked for first.

    Args:
        settings: pool.NAME.zones, .sizes, .regions (separated by commas), .on_demand ("no" keeps a spot pool spot).
    """

    def listed(name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in settings.get(f"pool.{spec.pool}.{name}", "").split(",") if part.strip())

    first = Candidate(sku=spec.sku, region=spec.region, zone=spec.zone, priority=spec.priority)
    on_demand = settings.get(f"pool.{spec.pool}.on_demand", "yes") != "no"
    return places_of(first, zones=listed("zones"), sizes=listed("sizes"), regions=listed("regions"), on_demand=on_demand)


def reservations_of(pool: str, stack: str, settings: Mapping[str, str]) -> frozenset[str]:
    """Return the ids of the reservations that a pool's settings name, lower case: a group on Azure, a reservation or a block on AWS."""
    found: set[str] = set()
    for name in ("reservation", "reservation_id"):
        value = _value(settings.get(f"pool.{pool}.{name}", settings.get(f"terraform.{stack}.{name}", "")))
        id_ = value.get("group_id") if isinstance(value, dict) else value
        if isinstance(id_, str) and id_:
            found.add(id_.lower())
    return frozenset(found)


def backend_from(settings: Mapping[str, str], fleet: str) -> Backend | None:
    """Return where states are kept, by the settings terraform.backend (a kind) and terraform.backend.NAME; None for on this machine.

    Raises:
        ConfigInvalid: config.backend.
    """
    kind = settings.get("terraform.backend", "")
    if not kind:
        return None
    start = "terraform.backend."
    own = {k.removeprefix(start): v for k, v in settings.items() if k.startswith(start) and k != f"{start}prefix"}
    return check_backend(Backend(kind=kind, settings=own, prefix=settings.get(f"{start}prefix", f"fleetctl/{fleet}/")))


def _value(text: str) -> object:
    try:
        found: object = json.loads(text)
    except ValueError:
        return text
    return found
