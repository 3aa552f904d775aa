locals {
  tags   = merge(var.tags, { "fleetctl-pool" = var.pool_id, "fleetctl-hold" = tostring(var.hold) })
  zones  = var.zone != "" ? [var.zone] : length(var.zones) > 0 ? var.zones : ["${var.region}a", "${var.region}b"]
  market = var.capacity_block ? "capacity-block" : var.priority == "spot" ? "spot" : "on-demand"
}

module "network" {
  source = "../../modules/network_aws"
  count  = length(var.subnet_ids) == 0 ? 1 : 0

  name          = var.pool_id
  zones         = local.zones
  address_space = var.network.address_space
  admin_sources = var.network.admin_sources
  serving       = var.network.serving
  outbound      = var.network.outbound
}

module "nvidia" {
  source = "../../modules/nvidia_pool_aws"

  pool_id            = var.pool_id
  instance_type      = var.sku
  host_count         = var.host_count
  form               = var.form
  image_id           = var.image_id
  subnet_ids         = length(var.subnet_ids) > 0 ? var.subnet_ids : module.network[0].subnet_ids
  security_group_ids = length(var.subnet_ids) > 0 ? var.security_group_ids : [module.network[0].security_group_id]
  key_name           = var.key_name == "" ? null : var.key_name
  capacity           = { market = local.market, reservation_id = var.reservation_id == "" ? null : var.reservation_id }
  placement          = var.placement
  tags               = local.tags
}
