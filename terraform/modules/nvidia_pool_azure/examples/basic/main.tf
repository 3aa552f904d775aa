# One H100 host, on a subnet that exists.
provider "azurerm" {
  features {}
}

module "pool" {
  source = "../.."

  pool_id             = "h100-eastus2"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  subnet_id           = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/v/subnets/hosts"
  size                = "Standard_ND96isr_H100_v5"
  host_count          = 1
  admin               = { public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
  placement           = { zone = "1" }
}
