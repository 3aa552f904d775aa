# One Ethernet card per host. InfiniBand cards of the "r" sizes come with the size (SR-IOV, 8 x 400 Gb/s) and are no resource of their own.

resource "azurerm_network_interface" "host" {
  for_each = local.host_ids

  name                           = "${each.key}-nic"
  location                       = var.location
  resource_group_name            = var.resource_group_name
  accelerated_networking_enabled = true
  tags                           = local.tags

  ip_configuration {
    name                          = "primary"
    subnet_id                     = var.subnet_id
    private_ip_address_allocation = "Dynamic"
  }
}
