# Where the hosts stand to each other, and what keeps their places.

locals {
  makes_proximity              = var.placement.proximity_placement_group && var.placement.proximity_placement_group_id == null
  proximity_placement_group_id = local.makes_proximity ? one(azurerm_proximity_placement_group.pool[*].id) : var.placement.proximity_placement_group_id
}

resource "azurerm_proximity_placement_group" "pool" {
  count = local.makes_proximity ? 1 : 0

  name                = "${var.pool_id}-ppg"
  location            = var.location
  resource_group_name = var.resource_group_name
  zone                = var.placement.zone
  allowed_vm_sizes    = var.placement.zone == null ? null : [var.size]
  tags                = local.tags
}

resource "azurerm_availability_set" "pool" {
  count = var.placement.availability_set ? 1 : 0

  name                         = "${var.pool_id}-as"
  location                     = var.location
  resource_group_name          = var.resource_group_name
  managed                      = true
  platform_fault_domain_count  = var.placement.fault_domains
  proximity_placement_group_id = local.proximity_placement_group_id
  tags                         = local.tags
}

# Flexible, without a profile of its own: hosts keep their names and addresses and join it.
resource "azurerm_orchestrated_virtual_machine_scale_set" "pool" {
  count = var.placement.form == "scale_set" ? 1 : 0

  name                         = "${var.pool_id}-ss"
  location                     = var.location
  resource_group_name          = var.resource_group_name
  platform_fault_domain_count  = var.placement.fault_domains
  single_placement_group       = false
  zones                        = var.placement.zone == null ? null : [var.placement.zone]
  proximity_placement_group_id = local.proximity_placement_group_id
  tags                         = local.tags
}

resource "azurerm_capacity_reservation_group" "pool" {
  count = var.reservation.create ? 1 : 0

  name                = "${var.pool_id}-crg"
  location            = var.location
  resource_group_name = var.resource_group_name
  zones               = var.placement.zone == null ? null : [var.placement.zone]
  tags                = local.tags
}

resource "azurerm_capacity_reservation" "pool" {
  count = var.reservation.create ? 1 : 0

  name                          = "${var.pool_id}-cr"
  capacity_reservation_group_id = azurerm_capacity_reservation_group.pool[0].id
  zone                          = var.placement.zone
  tags                          = local.tags

  sku {
    name     = var.size
    capacity = var.host_count
  }
}
