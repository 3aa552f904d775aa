# Plans only, with a provider that makes nothing.
mock_provider "aws" {}

variables {
  pool_id            = "h100-a"
  instance_type      = "p5.48xlarge"
  host_count         = 2
  image_id           = "ami-0123456789abcdef0"
  subnet_ids         = ["subnet-0123456789abcdef0"]
  security_group_ids = ["sg-0123456789abcdef0"]
}

run "named_hosts" {
  command = plan

  assert {
    condition     = length(aws_instance.host) == 2 && length(aws_autoscaling_group.pool) == 0
    error_message = "two named hosts, no group"
  }

  assert {
    condition     = aws_launch_template.pool.metadata_options[0].http_tokens == "required"
    error_message = "metadata only with a token"
  }

  assert {
    condition     = aws_launch_template.pool.block_device_mappings[0].ebs[0].encrypted == "true"
    error_message = "the root disk is encrypted"
  }
}

run "group_form" {
  command = plan

  variables {
    form = "group"
  }

  assert {
    condition     = aws_autoscaling_group.pool[0].desired_capacity == 2 && aws_autoscaling_group.pool[0].protect_from_scale_in && length(aws_instance.host) == 0
    error_message = "a group of two that takes none away by itself"
  }
}

run "block_without_reservation_is_refused" {
  command = plan

  variables {
    capacity = { market = "capacity-block" }
  }

  expect_failures = [var.capacity]
}

run "block" {
  command = plan

  variables {
    capacity = { market = "capacity-block", reservation_id = "cr-0123456789abcdef0" }
  }

  assert {
    condition     = aws_launch_template.pool.instance_market_options[0].market_type == "capacity-block"
    error_message = "the block is what is asked for"
  }
}

run "cluster_in_two_subnets_is_refused" {
  command = plan

  variables {
    subnet_ids = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
    placement  = { cluster = true }
  }

  expect_failures = [var.placement]
}

run "other_types_are_refused" {
  command = plan

  variables {
    instance_type = "m7i.large"
  }

  expect_failures = [var.instance_type]
}
