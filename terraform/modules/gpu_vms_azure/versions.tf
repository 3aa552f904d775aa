# Built for azurerm 5; arguments are those of 5.2. Not tested with 4.x, where some names differ.
terraform {
  required_version = ">= 1.9.0, < 2.0.0"

  required_providers {
    azurerm = {
      source  = "hashicorp/azurerm"
      version = ">= 5.2.0, < 6.0.0"
    }
  }
}
