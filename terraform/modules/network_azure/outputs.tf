output "subnet_id" {
  description = "Subnet of the hosts; given out once its rules are on it."
  value       = azurerm_subnet.hosts.id
  depends_on  = [azurerm_subnet_network_security_group_association.hosts]
}

output "virtual_network_id" {
  description = "The network, for peering."
  value       = azurerm_virtual_network.this.id
}

output "outbound_address" {
  description = "Public address that the hosts come from, null where they have no way out."
  value       = one(azurerm_public_ip.out[*].ip_address)
}
