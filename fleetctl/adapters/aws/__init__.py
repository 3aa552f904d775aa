"""Provision and plan, adapters layer: what AWS says of capacity, and what we left there. Never makes a machine."""
