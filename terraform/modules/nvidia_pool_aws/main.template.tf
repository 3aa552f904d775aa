# One launch template for both forms, so that a host is the same either way.

locals {
  numbers        = [for number in range(1, var.host_count + 1) : number]
  ordered_ids    = [for number in local.numbers : "${var.pool_id}-${number}"]
  host_subnets   = { for number in local.numbers : "${var.pool_id}-${number}" => var.subnet_ids[(number - 1) % length(var.subnet_ids)] }
  tags           = merge(var.tags, { "fleetctl-pool" = var.pool_id })
  placement_name = var.placement.cluster ? one(aws_placement_group.pool[*].name) : var.placement.group_name
  market_options = var.capacity.market == "on-demand" ? [] : [var.capacity.market]
  cloud_init     = templatefile("${path.module}/cloud-init.yaml.tftpl", { pool = var.pool_id })
}

resource "aws_placement_group" "pool" {
  count = var.placement.cluster ? 1 : 0

  name     = "${var.pool_id}-cluster"
  strategy = "cluster"
  tags     = local.tags
}

resource "aws_launch_template" "pool" {
  name_prefix            = "${var.pool_id}-" # a fixed name would stand in the way of a rerun after a crash
  image_id               = var.image_id
  instance_type          = var.instance_type
  key_name               = var.key_name
  update_default_version = true
  user_data              = base64encode(local.cloud_init)
  vpc_security_group_ids = var.placement.efa ? null : var.security_group_ids
  tags                   = local.tags

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = "/dev/sda1"

    ebs {
      volume_size           = var.root_disk.size_gb
      volume_type           = var.root_disk.type
      encrypted             = true
      kms_key_id            = var.root_disk.key_id
      delete_on_termination = true
    }
  }

  dynamic "network_interfaces" {
    for_each = var.placement.efa ? [0] : []

    content {
      device_index                = network_interfaces.value
      interface_type              = "efa"
      associate_public_ip_address = false
      security_groups             = var.security_group_ids
    }
  }

  dynamic "iam_instance_profile" {
    for_each = var.instance_profile == null ? [] : [var.instance_profile]

    content {
      name = iam_instance_profile.value
    }
  }

  dynamic "placement" {
    for_each = local.placement_name == null ? [] : [local.placement_name]

    content {
      group_name = placement.value
    }
  }

  dynamic "instance_market_options" {
    for_each = local.market_options

    content {
      market_type = instance_market_options.value

      dynamic "spot_options" {
        for_each = instance_market_options.value == "spot" ? [var.capacity.max_spot_price] : []

        content {
          max_price = spot_options.value
        }
      }
    }
  }

  dynamic "capacity_reservation_specification" {
    for_each = var.capacity.reservation_id == null ? [] : [var.capacity.reservation_id]

    content {
      capacity_reservation_target {
        capacity_reservation_id = capacity_reservation_specification.value
      }
    }
  }

  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume"])

    content {
      resource_type = tag_specifications.value
      tags          = local.tags
    }
  }
}
