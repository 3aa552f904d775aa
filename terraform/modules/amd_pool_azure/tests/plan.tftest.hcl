# Plans only, with a provider that makes nothing.
mock_provider "azurerm" {}

variables {
  pool_id             = "mi300x-a"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  subnet_id           = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/v/subnets/hosts"
  host_count          = 2
  admin               = { public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
}

run "two_hosts" {
  command = plan

  assert {
    condition     = length(module.vms.hosts) == 2
    error_message = "two hosts were asked for"
  }
}

run "unknown_size_is_refused" {
  command = plan

  variables {
    size = "Standard_ND96isr_MI300X_v6"
  }

  expect_failures = [var.size]
}

run "infiniband_needs_an_r_size" {
  command = plan

  variables {
    size       = "Standard_ND96is_MI300X_v5"
    infiniband = true
    placement  = { availability_set = true }
  }

  expect_failures = [var.infiniband]
}

run "infiniband_needs_one_place" {
  command = plan

  variables {
    infiniband = true
  }

  expect_failures = [var.infiniband]
}
