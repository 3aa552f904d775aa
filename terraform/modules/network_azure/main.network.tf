# A network, a subnet for hosts, and rules that let in only who is named. Names hold the region: a subnet and a rule know their parent by name
# only, and would be lost, not made again, when a pool goes to another region under the same names.

resource "azurerm_virtual_network" "this" {
  name                = "${var.name}-${var.location}-vnet"
  location            = var.location
  resource_group_name = var.resource_group_name
  address_space       = [var.address_space]
  tags                = var.tags
}

resource "azurerm_subnet" "hosts" {
  name                            = "hosts"
  resource_group_name             = var.resource_group_name
  virtual_network_name            = azurerm_virtual_network.this.name
  address_prefixes                = [cidrsubnet(var.address_space, 2, 0)]
  default_outbound_access_enabled = false
}

resource "azurerm_network_security_group" "hosts" {
  name                = "${var.name}-${var.location}-nsg"
  location            = var.location
  resource_group_name = var.resource_group_name
  tags                = var.tags
}

resource "azurerm_network_security_rule" "ssh" {
  count = length(var.admin_sources) > 0 ? 1 : 0

  name                        = "ssh-from-admins"
  resource_group_name         = var.resource_group_name
  network_security_group_name = azurerm_network_security_group.hosts.name
  priority                    = 200
  direction                   = "Inbound"
  access                      = "Allow"
  protocol                    = "Tcp"
  source_address_prefixes     = var.admin_sources
  source_port_range           = "*"
  destination_address_prefix  = "*"
  destination_port_range      = "22"
}

resource "azurerm_network_security_rule" "serving" {
  count = length(var.serving.sources) > 0 ? 1 : 0

  name                        = "serving-from-routers"
  resource_group_name         = var.resource_group_name
  network_security_group_name = azurerm_network_security_group.hosts.name
  priority                    = 210
  direction                   = "Inbound"
  access                      = "Allow"
  protocol                    = "Tcp"
  source_address_prefixes     = var.serving.sources
  source_port_range           = "*"
  destination_address_prefix  = "*"
  destination_port_ranges     = [for p in var.serving.ports : tostring(p)]
}

resource "azurerm_subnet_network_security_group_association" "hosts" {
  subnet_id                 = azurerm_subnet.hosts.id
  network_security_group_id = azurerm_network_security_group.hosts.id
}
