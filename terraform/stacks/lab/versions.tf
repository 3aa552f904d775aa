# Lab stand-in for a stack that makes VMs: folders on this machine instead of machines, no cloud, no provider to download.
# One state per pool: fleetctl copies these files to a folder of the pool's own and runs them there.
terraform {
  required_version = ">= 1.9.0"
}
