# A pool with its places reserved (billed from now on), beside a spot pool that may go at any time.
provider "azurerm" {
  features {}
}

module "reserved" {
  source = "../.."

  pool_id             = "mi300x-reserved"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  subnet_id           = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/v/subnets/hosts"
  host_count          = 1
  admin               = { public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
  reservation         = { create = true }
}

module "spot" {
  source = "../.."

  pool_id             = "mi300x-spot"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  subnet_id           = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/v/subnets/hosts"
  size                = "Standard_ND96is_MI300X_v5"
  host_count          = 1
  admin               = { public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
  spot                = { enabled = true }
}
