"""Inventory, plan and provision, adapter layer: what AWS runs, what it says of capacity, and what we left there. Never makes a machine."""
