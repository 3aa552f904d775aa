resource "azurerm_public_ip" "out" {
  count = var.outbound ? 1 : 0

  name                = "${var.name}-out"
  location            = var.location
  resource_group_name = var.resource_group_name
  allocation_method   = "Static"
  sku                 = "Standard"
  tags                = var.tags
}

resource "azurerm_nat_gateway" "out" {
  count = var.outbound ? 1 : 0

  name                = "${var.name}-nat"
  location            = var.location
  resource_group_name = var.resource_group_name
  sku_name            = "Standard"
  tags                = var.tags
}

resource "azurerm_nat_gateway_public_ip_association" "out" {
  count = var.outbound ? 1 : 0

  nat_gateway_id       = azurerm_nat_gateway.out[0].id
  public_ip_address_id = azurerm_public_ip.out[0].id
}

resource "azurerm_subnet_nat_gateway_association" "out" {
  count = var.outbound ? 1 : 0

  subnet_id      = azurerm_subnet.hosts.id
  nat_gateway_id = azurerm_nat_gateway.out[0].id
}
