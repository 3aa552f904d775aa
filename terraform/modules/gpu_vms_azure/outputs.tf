output "hosts" {
  description = "Hosts in the order of their numbers, as fleetctl reads them."
  value = [
    for id in local.ordered_ids : {
      id         = id
      pool       = var.pool_id
      address    = azurerm_linux_virtual_machine.host[id].private_ip_address
      connection = "ssh"
      user       = var.admin.username
      variables = {
        cloud_id = azurerm_linux_virtual_machine.host[id].id
        intent   = lookup(var.tags, "fleetctl-intent", "")
        sku      = var.size
        vm_id    = azurerm_linux_virtual_machine.host[id].virtual_machine_id
      }
    }
  ]
}

output "identity_ids" {
  description = "Identities that the hosts carry; give them rights, not the hosts."
  value       = local.identity_ids
}

output "capacity_reservation_group_id" {
  description = "The reservation that holds the pool's places, null where there is none."
  value       = local.reservation_id
}
