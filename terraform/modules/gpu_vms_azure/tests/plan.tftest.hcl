# Plans only, with a provider that makes nothing.
mock_provider "azurerm" {}

variables {
  pool_id             = "mi300x-a"
  location            = "eastus2"
  resource_group_name = "rg-inference"
  subnet_id           = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-net/providers/Microsoft.Network/virtualNetworks/v/subnets/hosts"
  host_count          = 2
  admin               = { public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
  size                = "Standard_ND96isr_MI300X_v5"
}

run "regular_hosts_have_no_spot_terms" {
  command = plan

  assert {
    condition     = alltrue([for h in azurerm_linux_virtual_machine.host : h.priority == "Regular" && h.eviction_policy == null])
    error_message = "eviction_policy is forbidden for a regular host"
  }

  assert {
    condition     = alltrue([for h in azurerm_linux_virtual_machine.host : h.disable_password_authentication && h.termination_notification[0].enabled])
    error_message = "hosts are reached by key only and are told before they are taken"
  }
}

run "spot_hosts_are_deleted_when_taken" {
  command = plan

  variables {
    spot = { enabled = true }
  }

  assert {
    condition     = azurerm_linux_virtual_machine.host["mi300x-a-1"].eviction_policy == "Delete"
    error_message = "an ephemeral OS disk cannot be deallocated"
  }
}

run "scale_set_form_keeps_names" {
  command = plan

  variables {
    placement = { form = "scale_set", zone = "2" }
  }

  assert {
    condition     = length(azurerm_orchestrated_virtual_machine_scale_set.pool) == 1 && length(azurerm_linux_virtual_machine.host) == 2
    error_message = "hosts join the scale set by name"
  }
}

run "reservation_takes_as_many_places_as_hosts" {
  command = plan

  variables {
    reservation = { create = true }
  }

  assert {
    condition     = azurerm_capacity_reservation.pool[0].sku[0].capacity == 2
    error_message = "one place per host"
  }
}

run "reservation_does_not_hold_for_spot" {
  command = plan

  variables {
    reservation = { create = true }
    spot        = { enabled = true }
  }

  expect_failures = [var.reservation]
}

run "reservation_and_proximity_exclude_each_other" {
  command = plan

  variables {
    reservation = { create = true }
    placement   = { proximity_placement_group = true }
  }

  expect_failures = [var.reservation]
}

run "deallocate_and_ephemeral_exclude_each_other" {
  command = plan

  variables {
    spot = { enabled = true, eviction_policy = "Deallocate" }
  }

  expect_failures = [var.spot]
}

run "a_private_key_is_refused" {
  command = plan

  variables {
    admin = { public_key = "-----BEGIN OPENSSH PRIVATE KEY-----" }
  }

  expect_failures = [var.admin]
}

run "root_is_refused" {
  command = plan

  variables {
    admin = { username = "root", public_key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com" }
  }

  expect_failures = [var.admin]
}

run "half_a_host_is_refused" {
  command = plan

  variables {
    host_count = 1.5
  }

  expect_failures = [var.host_count]
}
