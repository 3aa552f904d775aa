output "hosts" {
  description = "Hosts in the order of their numbers, as fleetctl reads them."
  value       = module.vms.hosts
}

output "identity_ids" {
  description = "Identities that the hosts carry; give them rights, not the hosts."
  value       = module.vms.identity_ids
}

output "capacity_reservation_group_id" {
  description = "The reservation that holds the pool's places, null where there is none."
  value       = module.vms.capacity_reservation_group_id
}
