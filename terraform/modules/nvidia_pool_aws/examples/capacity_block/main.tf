# A capacity block, close together and with EFA. Its instances are ended at the block's end: move away before.
provider "aws" {
  region = "us-east-1"
}

module "pool" {
  source = "../.."

  pool_id            = "h100-block"
  instance_type      = "p5.48xlarge"
  host_count         = 2
  image_id           = "ami-0123456789abcdef0"
  subnet_ids         = ["subnet-0123456789abcdef0"]
  security_group_ids = ["sg-0123456789abcdef0"]
  capacity           = { market = "capacity-block", reservation_id = "cr-0123456789abcdef0" }
  placement          = { cluster = true, efa = true }
}
