module "amd" {
  source = "../../modules/amd_pool_azure"
  count  = var.vendor == "amd" ? 1 : 0

  pool_id             = var.pool_id
  location            = var.region
  resource_group_name = local.resource_group_name
  subnet_id           = local.subnet_id
  size                = var.sku
  infiniband          = var.infiniband
  host_count          = var.host_count
  admin               = { username = var.admin_username, public_key = var.admin_public_key }
  spot                = { enabled = var.priority == "spot" }
  placement           = merge(var.placement, { zone = var.zone == "" ? null : var.zone })
  reservation         = var.reservation
  os_disk             = var.os_disk
  tags                = local.tags
}

module "nvidia" {
  source = "../../modules/nvidia_pool_azure"
  count  = var.vendor == "nvidia" ? 1 : 0

  pool_id             = var.pool_id
  location            = var.region
  resource_group_name = local.resource_group_name
  subnet_id           = local.subnet_id
  size                = var.sku
  infiniband          = var.infiniband
  host_count          = var.host_count
  admin               = { username = var.admin_username, public_key = var.admin_public_key }
  spot                = { enabled = var.priority == "spot" }
  placement           = merge(var.placement, { zone = var.zone == "" ? null : var.zone })
  reservation         = var.reservation
  os_disk             = var.os_disk
  tags                = local.tags
}
