# Two named hosts on a subnet that exists.
provider "aws" {
  region = "us-east-1"
}

module "pool" {
  source = "../.."

  pool_id            = "h100-use1"
  instance_type      = "p5.48xlarge"
  host_count         = 2
  image_id           = "ami-0123456789abcdef0"
  subnet_ids         = ["subnet-0123456789abcdef0"]
  security_group_ids = ["sg-0123456789abcdef0"]
}
