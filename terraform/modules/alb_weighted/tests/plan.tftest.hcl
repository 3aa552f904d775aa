# Plans only, with a provider that makes nothing.
mock_provider "aws" {
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/app/chat/1" }
  }

  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/chat/1" }
  }
}

variables {
  name               = "chat"
  vpc_id             = "vpc-0123456789abcdef0"
  subnet_ids         = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  security_group_ids = ["sg-0123456789abcdef0"]
}

run "everything_to_the_baseline_at_first" {
  command = plan

  assert {
    condition     = one([for g in aws_lb_listener.split.default_action[0].forward[0].target_group : g.weight if g.weight > 0]) == 999
    error_message = "only the baseline has a weight"
  }

  assert {
    condition     = aws_lb.this.enable_deletion_protection && aws_lb.this.drop_invalid_header_fields
    error_message = "protected, and strict about headers"
  }
}

run "one_subnet_is_refused" {
  command = plan

  variables {
    subnet_ids = ["subnet-0123456789abcdef0"]
  }

  expect_failures = [var.subnet_ids]
}

run "facing_the_internet_needs_a_certificate" {
  command = plan

  variables {
    internal = false
  }

  expect_failures = [var.certificate_arn]
}
