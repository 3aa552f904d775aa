"""Provision, planning layer: what a Terraform plan may never do to machines that serve. Pure; never runs Terraform."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fleetctl.domain.ids import PoolId
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.provision import ProvisionPlan, ResourceChange
from fleetctl.errors import FleetctlError

LAB_TYPES = frozenset({"terraform_data"})
"""Resource types of the lab's stack; a stack of a cloud brings its own list."""

_HARMLESS = frozenset({"no-op", "create", "read", "update"})
_ENDING = frozenset({"delete", "forget"})
_IN_SERVICE = frozenset({"azurerm_linux_virtual_machine", "aws_instance"})
"""Types of which one is one machine that a provider may stop and start to change it."""
_RUNS_ON = frozenset(
    {"boot_diagnostics", "identity", "max_bid_price", "tags", "tags_all", "termination_notification", "timeouts", "volume_tags"}
)
"""Attributes that change while the machine runs. Any other is taken to restart it: a new size, a disk controller, a placement do
(Azure moves the machine, which empties its local disks, and may have no room for it). Source: azurerm 5.2,
website/docs/r/linux_virtual_machine.html; Microsoft Learn "Resize a virtual machine"; read 2026-11-30."""
_GROUPS_KEEP: Mapping[str, frozenset[str]] = {
    "aws_autoscaling_group": frozenset(
        {
            "tag",
            "tags",
            "tags_all",
            "timeouts",
            "min_size",
            "max_size",
            "desired_capacity",
            "launch_template",
            "protect_from_scale_in",
            "wait_for_capacity_timeout",
            "force_delete",
            "capacity_reservation_specification",
        }
    )
}
"""Attributes of a group that change without ending its machines (a new template is for new machines; a size is looked at by itself).
Any other is taken to end some: other subnets rebalance, a longest life or a refresh replaces. Source: Amazon EC2 Auto Scaling user guide,
"Rebalancing activities" and "Instance refresh"; read 2026-11-30."""
_CARDS = frozenset({"azurerm_network_interface"})
_CARDS_KEEP = frozenset({"tags", "timeouts"})
"""Attributes of a host's card that change while it is reached; another subnet or address takes the host away from its router."""
_NEVER_FINISHED = "replace_because_tainted"


def is_guard(e: FleetctlError) -> bool:
    """Tell whether a plan failed as prevent_destroy stands in its way."""
    said = "\n".join((e.message, *e.details)).lower()
    return "prevent_destroy" in said or "instance cannot be destroyed" in said


def check_provision(
    shown: ProvisionPlan,
    holds: Collection[PoolId],
    *,
    allowed_types: Collection[str] = LAB_TYPES,
    permitted: Collection[PoolId] = (),
) -> tuple[Diagnostic, ...]:
    """Return what forbids applying this plan, one diagnostic per resource and rule; () where nothing does.

    A machine whose making failed (Terraform calls it tainted) may be made again, but not in a held pool: there it may be one that serves.

    Args:
        holds: pools that serve or are held; nothing of them may be destroyed, replaced, made smaller or dropped from the state.
        allowed_types: resource types that the stack is known to make.
        permitted: pools of which hosts may be destroyed or replaced (never a held one).
    """
    found: list[Diagnostic] = []
    for change in shown.changes:
        if change.type not in allowed_types:
            found.append(_error("provision.unexpected_type", change, f"is a {change.type}, which this stack is not known to make"))
        unknown = [a for a in change.actions if a not in _HARMLESS | _ENDING]
        if unknown or not change.actions:
            found.append(
                _error("provision.unknown_action", change, f"would be put through an unknown action ({', '.join(unknown) or 'none'})")
            )
        if _ENDING.intersection(change.actions) or change.machines < 0:
            found.extend(_ending(change, shown, holds, permitted))
        elif "update" in change.actions and (change.type in _IN_SERVICE | _CARDS or change.type in _GROUPS_KEEP):
            found.extend(_restarting(change, shown, holds, permitted))
    return tuple(found)


def _restarting(
    change: ResourceChange, shown: ProvisionPlan, holds: Collection[PoolId], permitted: Collection[PoolId]
) -> tuple[Diagnostic, ...]:
    """Refuse to change a machine in a way that stops it, unless nobody was ever told of it."""
    pools = (change.pool,) if change.pool is not None else shown.pools
    if pools and all(pool in permitted and pool not in holds for pool in pools):
        return ()
    kept, how = _RUNS_ON, "restarts it"
    if change.type in _GROUPS_KEEP:
        kept, how = _GROUPS_KEEP[change.type], "may end machines of it"
    elif change.type in _CARDS:
        kept, how = _CARDS_KEEP, "takes its host away from who reaches it"
    stops = [name for name in change.changed if name not in kept]
    if not stops:
        return ()
    text = f"would be changed in place ({', '.join(stops[:5])}), which {how}; make a new pool for that"
    return (_error("provision.restarts", change, text),)


def _ending(
    change: ResourceChange, shown: ProvisionPlan, holds: Collection[PoolId], permitted: Collection[PoolId]
) -> tuple[Diagnostic, ...]:
    pools = (change.pool,) if change.pool is not None else shown.pools
    held = sorted(set(pools) & set(holds)) if pools else sorted(holds)
    verb = _verb(change)
    if held:
        return (_error("provision.held", change, f"would be {verb}, but pool {', '.join(held)} is held or serving"),)
    if pools and all(pool in permitted for pool in pools):
        return ()
    if "create" in change.actions and change.reason == _NEVER_FINISHED:
        return ()
    return (_error("provision.destroys", change, f"would be {verb}, and nothing permits that"),)


def _verb(change: ResourceChange) -> str:
    if not _ENDING.intersection(change.actions):
        return f"made smaller by {-change.machines}"
    if "create" in change.actions:
        return "replaced"
    return "destroyed" if "delete" in change.actions else "dropped from the state"


def _error(code: str, change: ResourceChange, text: str) -> Diagnostic:
    return Diagnostic(severity="error", code=code, text=f"{change.address} {text}", path=change.address)
