# One pool on Azure, of either vendor. One state per pool: fleetctl copies these files to a folder of the pool's own and runs them there,
# so a broken state of one pool cannot keep another from being used.
terraform {
  required_version = ">= 1.9.0, < 2.0.0"

  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 5.2.0, < 6.0.0"
    }
  }
}

provider "azurerm" {
  subscription_id                 = var.subscription_id
  resource_provider_registrations = "none"

  features {
    resource_group {
      prevent_deletion_if_contains_resources = true
    }

    virtual_machine {
      delete_os_disk_on_deletion = true
    }
  }
}
