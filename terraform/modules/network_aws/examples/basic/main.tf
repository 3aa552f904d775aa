# A network in two zones, served to one router network.
provider "aws" {
  region = "us-east-1"
}

module "network" {
  source = "../.."

  name    = "inference"
  zones   = ["us-east-1a", "us-east-1b"]
  serving = { sources = ["10.0.0.0/24"] }
}
