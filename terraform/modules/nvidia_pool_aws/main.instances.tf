# Named hosts. prevent_destroy stands here for everybody; fleetctl lifts it, by an override in a pool's own copy, only for a pool that is not held.

resource "aws_instance" "host" {
  for_each = var.form == "instances" ? local.host_subnets : {}

  subnet_id = each.value
  tags      = merge(local.tags, { Name = each.key })

  launch_template {
    id      = aws_launch_template.pool.id
    version = "$Latest"
  }

  timeouts {
    create = "15m"
    delete = "20m"
  }

  lifecycle {
    prevent_destroy = true
    ignore_changes  = [launch_template, user_data, user_data_base64] # of the first boot only
  }
}
