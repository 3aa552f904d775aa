# A group: one host that cannot be had does not fail the others, and AWS keeps trying.

resource "aws_autoscaling_group" "pool" {
  count = var.form == "group" ? 1 : 0

  name                      = var.pool_id
  min_size                  = var.host_count
  desired_capacity          = var.host_count
  max_size                  = var.host_count
  vpc_zone_identifier       = var.subnet_ids
  health_check_type         = "EC2"
  wait_for_capacity_timeout = "10m"
  protect_from_scale_in     = true # the router drains a host first, then fleetctl takes it
  force_delete              = true # only by a release: a group of protected hosts is never empty by itself

  launch_template {
    id      = aws_launch_template.pool.id
    version = aws_launch_template.pool.latest_version
  }

  dynamic "tag" {
    for_each = local.tags

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  lifecycle {
    prevent_destroy = true
  }
}

data "aws_instances" "group" {
  count = var.form == "group" && var.host_count > 0 ? 1 : 0

  instance_state_names = ["pending", "running"]

  instance_tags = {
    "aws:autoscaling:groupName" = aws_autoscaling_group.pool[0].name
  }
}
