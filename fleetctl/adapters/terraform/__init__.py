"""Provision, adapters layer: machines by Terraform or OpenTofu, one state per pool. Never decides what may be destroyed."""
