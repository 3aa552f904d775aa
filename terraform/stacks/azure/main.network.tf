locals {
  resource_group_name = var.resource_group_name != "" ? var.resource_group_name : azurerm_resource_group.pool[0].name
  subnet_id           = var.subnet_id != "" ? var.subnet_id : module.network[0].subnet_id
  tags                = merge(var.tags, { "fleetctl-pool" = var.pool_id, "fleetctl-hold" = tostring(var.hold) })
}

resource "azurerm_resource_group" "pool" {
  count = var.resource_group_name == "" ? 1 : 0

  name     = "fleetctl-${var.pool_id}-${var.region}"
  location = var.region
  tags     = local.tags
}

module "network" {
  source = "../../modules/network_azure"
  count  = var.subnet_id == "" ? 1 : 0

  name                = var.pool_id
  location            = var.region
  resource_group_name = local.resource_group_name
  address_space       = var.network.address_space
  admin_sources       = var.network.admin_sources
  serving             = var.network.serving
  outbound            = var.network.outbound
  tags                = local.tags
}
