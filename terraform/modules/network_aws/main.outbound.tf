resource "aws_internet_gateway" "out" {
  count = var.outbound ? 1 : 0

  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = var.name })
}

resource "aws_subnet" "outer" {
  for_each = var.outbound ? local.zones : {}

  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = cidrsubnet(var.address_space, 4, each.value + 8)
  tags              = merge(var.tags, { Name = "${var.name}-outer-${each.key}" })
}

resource "aws_route_table" "outer" {
  count = var.outbound ? 1 : 0

  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = "${var.name}-outer" })
}

resource "aws_route" "outer" {
  count = var.outbound ? 1 : 0

  route_table_id         = aws_route_table.outer[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.out[0].id
}

resource "aws_route_table_association" "outer" {
  for_each = aws_subnet.outer

  subnet_id      = each.value.id
  route_table_id = aws_route_table.outer[0].id
}

resource "aws_eip" "nat" {
  count = var.outbound ? 1 : 0

  domain = "vpc"
  tags   = merge(var.tags, { Name = "${var.name}-nat" })
}

resource "aws_nat_gateway" "out" {
  count = var.outbound ? 1 : 0

  allocation_id = aws_eip.nat[0].id
  subnet_id     = aws_subnet.outer[var.zones[0]].id
  tags          = merge(var.tags, { Name = var.name })
  depends_on    = [aws_internet_gateway.out]
}

resource "aws_route_table" "hosts" {
  vpc_id = aws_vpc.this.id
  tags   = merge(var.tags, { Name = "${var.name}-hosts" })
}

resource "aws_route" "hosts" {
  count = var.outbound ? 1 : 0

  route_table_id         = aws_route_table.hosts.id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.out[0].id
}

resource "aws_route_table_association" "hosts" {
  for_each = aws_subnet.hosts

  subnet_id      = each.value.id
  route_table_id = aws_route_table.hosts.id
}
