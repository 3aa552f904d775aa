# Two MI300X hosts in one zone, on a subnet that exists.
provider "azurerm" {
  features {}
}

module "pool" {
  source = "../.."

  pool_id             = "mi300x-eastus2"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  subnet_id           = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/v/subnets/hosts"
  host_count          = 2
  admin               = { public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
  placement           = { zone = "1" }
}
