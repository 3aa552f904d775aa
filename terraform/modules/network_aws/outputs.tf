output "vpc_id" {
  description = "The network."
  value       = aws_vpc.this.id
}

output "subnet_ids" {
  description = "Subnets of the hosts, in the order of `zones`."
  value       = [for zone in var.zones : aws_subnet.hosts[zone].id]
}

output "outer_subnet_ids" {
  description = "Subnets that face out, for a load balancer, in the order of `zones`; empty without outbound."
  value       = [for zone in var.zones : aws_subnet.outer[zone].id if var.outbound]
}

output "security_group_id" {
  description = "Security group of the hosts."
  value       = aws_security_group.hosts.id
}
