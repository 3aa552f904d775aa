"""Inventory, plan and provision, adapter layer: what Azure runs, says of capacity, and what we left there. Never makes a machine."""
