# A load balancer whose listener splits between two target groups by weight.

resource "aws_lb" "this" {
  name                       = var.name
  internal                   = var.internal
  load_balancer_type         = "application"
  subnets                    = var.subnet_ids
  security_groups            = var.security_group_ids
  idle_timeout               = var.idle_timeout
  drop_invalid_header_fields = true
  enable_deletion_protection = var.protect
  tags                       = var.tags

  dynamic "access_logs" {
    for_each = var.access_logs == null ? [] : [var.access_logs]

    content {
      bucket  = access_logs.value.bucket
      prefix  = access_logs.value.prefix
      enabled = true
    }
  }
}

resource "aws_lb_target_group" "arm" {
  for_each = toset(["baseline", "canary"])

  name                          = "${var.name}-${each.key}"
  vpc_id                        = var.vpc_id
  port                          = var.port
  protocol                      = "HTTP"
  target_type                   = "ip"
  deregistration_delay          = 300
  load_balancing_algorithm_type = "round_robin"
  tags                          = merge(var.tags, { "fleetctl-arm" = each.key })

  health_check {
    path                = var.health.path
    interval            = var.health.interval
    healthy_threshold   = var.health.healthy
    unhealthy_threshold = var.health.failing
    matcher             = "200"
  }
}

resource "aws_lb_listener" "split" {
  load_balancer_arn = aws_lb.this.arn
  port              = var.certificate_arn == null ? 80 : 443
  protocol          = var.certificate_arn == null ? "HTTP" : "HTTPS"
  ssl_policy        = var.certificate_arn == null ? null : "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn
  tags              = var.tags

  default_action {
    type = "forward"

    forward {
      target_group {
        arn    = aws_lb_target_group.arm["baseline"].arn
        weight = var.first_weights.baseline
      }

      target_group {
        arn    = aws_lb_target_group.arm["canary"].arn
        weight = var.first_weights.canary
      }
    }
  }

  # The router alone owns the weights and the tag beside them: an apply in mid-migration must not move traffic.
  lifecycle {
    ignore_changes = [default_action, tags["fleetctl:split"], tags_all["fleetctl:split"],
    tags["fleetctl:token"], tags_all["fleetctl:token"]]
  }
}
