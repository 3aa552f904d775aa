"""Provision and plan, adapters layer: what Azure says of capacity, and what we left there. Never makes a machine."""
