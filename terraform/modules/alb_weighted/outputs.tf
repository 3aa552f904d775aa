output "listener_arn" {
  description = "Listener whose weights the router sets."
  value       = aws_lb_listener.split.arn
}

output "target_group_arns" {
  description = "Target groups by arm."
  value       = { for arm, group in aws_lb_target_group.arm : arm => group.arn }
}

output "dns_name" {
  description = "Name under which clients reach it."
  value       = aws_lb.this.dns_name
}
