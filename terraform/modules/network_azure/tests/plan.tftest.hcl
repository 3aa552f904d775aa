# Plans only, with a provider that makes nothing.
mock_provider "azurerm" {}

variables {
  name                = "inference"
  location            = "eastus2"
  resource_group_name = "rg-inference"
}

run "closed_by_default" {
  command = plan

  assert {
    condition     = length(azurerm_network_security_rule.ssh) == 0 && length(azurerm_network_security_rule.serving) == 0
    error_message = "nobody is let in unless named"
  }
}

run "hosts_get_the_first_quarter" {
  command = plan

  assert {
    condition     = azurerm_subnet.hosts.address_prefixes[0] == "10.40.0.0/22" && !azurerm_subnet.hosts.default_outbound_access_enabled
    error_message = "a quarter of the network, without Azure's default way out"
  }
}

run "the_whole_internet_is_refused" {
  command = plan

  variables {
    admin_sources = ["0.0.0.0/0"]
  }

  expect_failures = [var.admin_sources]
}

run "no_way_out_makes_no_gateway" {
  command = plan

  variables {
    outbound = false
  }

  assert {
    condition     = length(azurerm_nat_gateway.out) == 0 && length(azurerm_public_ip.out) == 0
    error_message = "nothing that faces out"
  }
}
