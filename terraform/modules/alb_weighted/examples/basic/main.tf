# All traffic to the baseline at first; from then on the router sets the weights.
provider "aws" {
  region = "us-east-1"
}

module "balancer" {
  source = "../.."

  name               = "chat"
  vpc_id             = "vpc-0123456789abcdef0"
  subnet_ids         = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  security_group_ids = ["sg-0123456789abcdef0"]
}
