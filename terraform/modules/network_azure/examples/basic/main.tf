# A network whose hosts are reached by SSH from one office and served to one router network.
provider "azurerm" {
  features {}
}

module "network" {
  source = "../.."

  name                = "inference"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  admin_sources       = ["192.0.2.0/24"]
  serving             = { sources = ["10.0.0.0/24"] }
}
