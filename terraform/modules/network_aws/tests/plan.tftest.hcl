# Plans only, with a provider that makes nothing.
mock_provider "aws" {}

variables {
  name  = "inference"
  zones = ["us-east-1a", "us-east-1b"]
}

run "two_zones" {
  command = plan

  assert {
    condition     = length(aws_subnet.hosts) == 2 && alltrue([for s in aws_subnet.hosts : !s.map_public_ip_on_launch])
    error_message = "one subnet per zone, without public addresses"
  }
}

run "closed_by_default" {
  command = plan

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.ssh) == 0 && length(aws_vpc_security_group_ingress_rule.serving) == 0
    error_message = "nobody is let in unless named"
  }
}

run "the_whole_internet_is_refused" {
  command = plan

  variables {
    serving = { sources = ["0.0.0.0/0"] }
  }

  expect_failures = [var.serving]
}
