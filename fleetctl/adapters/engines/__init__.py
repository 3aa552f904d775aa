"""Inventory, adapter layer: running inference servers by their own APIs and metrics pages. Never sends a completion."""
