"""Provision, planning layer: is a Terraform plan within what was asked for, and what does it cost. Pure; never runs Terraform."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from fleetctl.domain.people import Diagnostic
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import ProvisionPlan

MACHINES = frozenset({"azurerm_linux_virtual_machine", "aws_instance", "terraform_data"})
"""Types of which one is one machine; a group says itself how many it keeps."""

ALLOWED: Mapping[str, frozenset[str]] = {
    "lab": frozenset({"terraform_data"}),
    "azure": frozenset(
        {
            "azurerm_resource_group",
            "azurerm_virtual_network",
            "azurerm_subnet",
            "azurerm_network_security_group",
            "azurerm_network_security_rule",
            "azurerm_subnet_network_security_group_association",
            "azurerm_public_ip",
            "azurerm_nat_gateway",
            "azurerm_nat_gateway_public_ip_association",
            "azurerm_subnet_nat_gateway_association",
            "azurerm_network_interface",
            "azurerm_linux_virtual_machine",
            "azurerm_orchestrated_virtual_machine_scale_set",
            "azurerm_proximity_placement_group",
            "azurerm_availability_set",
            "azurerm_capacity_reservation_group",
            "azurerm_capacity_reservation",
            "azurerm_user_assigned_identity",
        }
    ),
    "aws": frozenset(
        {
            "aws_vpc",
            "aws_default_security_group",
            "aws_subnet",
            "aws_security_group",
            "aws_vpc_security_group_ingress_rule",
            "aws_vpc_security_group_egress_rule",
            "aws_internet_gateway",
            "aws_route_table",
            "aws_route",
            "aws_route_table_association",
            "aws_eip",
            "aws_nat_gateway",
            "aws_placement_group",
            "aws_launch_template",
            "aws_instance",
            "aws_instances",
            "aws_autoscaling_group",
        }
    ),
}
"""Resource types that each stack of ours makes; anything else in a plan is refused."""


def check_delta(shown: ProvisionPlan, spec: PoolSpec) -> tuple[Diagnostic, ...]:
    """Return what goes beyond the pool's count, () where nothing does."""
    made = sum("create" in c.actions for c in shown.changes if c.type in MACHINES) + sum(max(0, c.machines) for c in shown.changes)
    if made <= spec.count:
        return ()
    text = f"pool {spec.pool} would get {made} new machines, but {spec.count} were asked for"
    return (Diagnostic(severity="error", code="provision.too_many", text=text, path=spec.pool),)


def cost_of_delta(shown: ProvisionPlan, price: Decimal | None) -> Decimal | None:
    """Return what the plan adds to the bill, USD per hour (below 0: saves); None where the price is not known and machines change.

    Args:
        price: of one machine, USD per hour.
    """
    change = sum(c.machines for c in shown.changes)
    for c in shown.changes:
        if c.type in MACHINES:
            change += ("create" in c.actions) - ("delete" in c.actions)
    if change == 0:
        return Decimal(0)
    return None if price is None else price * change
