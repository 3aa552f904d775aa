# A network with one subnet for hosts per zone, closed but for who is named.

locals {
  zones   = { for place, zone in var.zones : zone => place }
  ingress = { for pair in setproduct(var.serving.ports, var.serving.sources) : "${pair[0]}-${pair[1]}" => { port = pair[0], source = pair[1] } }
}

resource "aws_vpc" "this" {
  cidr_block           = var.address_space
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = merge(var.tags, { Name = var.name })
}

# Nothing uses the default group, and it lets nothing in or out.
resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = "${var.name}-default-closed" })
}

resource "aws_subnet" "hosts" {
  for_each = local.zones

  vpc_id                  = aws_vpc.this.id
  availability_zone       = each.key
  cidr_block              = cidrsubnet(var.address_space, 4, each.value)
  map_public_ip_on_launch = false
  tags                    = merge(var.tags, { Name = "${var.name}-hosts-${each.key}" })
}

resource "aws_security_group" "hosts" {
  name        = "${var.name}-hosts"
  description = "Inference hosts of ${var.name}"
  vpc_id      = aws_vpc.this.id
  tags        = merge(var.tags, { Name = "${var.name}-hosts" })
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  for_each = var.admin_sources

  security_group_id = aws_security_group.hosts.id
  description       = "SSH from an admin network"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_vpc_security_group_ingress_rule" "serving" {
  for_each = local.ingress

  security_group_id = aws_security_group.hosts.id
  description       = "Serving from a router network"
  cidr_ipv4         = each.value.source
  ip_protocol       = "tcp"
  from_port         = each.value.port
  to_port           = each.value.port
}

# Hosts to each other: EFA needs all.
resource "aws_vpc_security_group_ingress_rule" "each_other" {
  security_group_id            = aws_security_group.hosts.id
  referenced_security_group_id = aws_security_group.hosts.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "out" {
  security_group_id = aws_security_group.hosts.id
  description       = "Packages, images, models"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
