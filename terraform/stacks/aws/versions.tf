# One NVIDIA pool on AWS. One state per pool: fleetctl copies these files to a folder of the pool's own and runs them there,
# so a broken state of one pool cannot keep another from being used.
terraform {
  required_version = ">= 1.9.0, < 2.0.0"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.100.0, < 6.0.0"
    }
  }
}

provider "aws" {
  region      = var.region
  max_retries = 5

  default_tags {
    tags = local.tags
  }
}
