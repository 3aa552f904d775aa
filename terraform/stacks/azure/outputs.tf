output "hosts" {
  description = "Hosts in the order of their numbers, as fleetctl reads them."
  value       = concat(flatten(module.amd[*].hosts), flatten(module.nvidia[*].hosts))
}

output "pool" {
  description = "What the pool was made as."
  value = {
    id         = var.pool_id
    vendor     = var.vendor
    sku        = var.sku
    region     = var.region
    zone       = var.zone
    priority   = var.priority
    host_count = var.host_count
    hold       = var.hold
  }
}
