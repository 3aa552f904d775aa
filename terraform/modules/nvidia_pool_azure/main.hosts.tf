# NVIDIA hosts on Azure, by the common module.

module "vms" {
  source = "../gpu_vms_azure"

  pool_id              = var.pool_id
  location             = var.location
  resource_group_name  = var.resource_group_name
  subnet_id            = var.subnet_id
  size                 = var.size
  host_count           = var.host_count
  image                = var.image
  admin                = var.admin
  spot                 = var.spot
  placement            = var.placement
  reservation          = var.reservation
  os_disk              = var.os_disk
  disk_controller_type = var.disk_controller_type
  identity_ids         = var.identity_ids
  termination_notice   = var.termination_notice
  encryption_at_host   = var.encryption_at_host
  tags                 = var.tags
}
