output "hosts" {
  description = "Hosts in the order of their numbers, as fleetctl reads them. Without var.network all are this machine, each in its own folder."
  value = [
    for id in local.host_ids : {
      id         = terraform_data.host[id].output.id
      pool       = terraform_data.host[id].output.pool
      address    = var.network == "" ? "127.0.0.1" : "${var.network}.${10 + terraform_data.host[id].output.number}"
      connection = var.network == "" ? "local" : "ssh"
      user       = var.network == "" ? "" : "ops"
      variables = {
        folder = terraform_data.host[id].output.folder
        vendor = terraform_data.host[id].output.vendor
        sku    = terraform_data.host[id].output.sku
      }
    }
  ]
}

output "pool" {
  description = "What the pool was made as."
  value = {
    id         = var.pool_id
    vendor     = var.vendor
    sku        = var.sku
    region     = var.region
    host_count = var.host_count
    hold       = var.hold
  }
}
