"""Inventory, adapter layer: nodes, pods and their owners that ask for GPUs, by the official client. Never writes to a cluster."""
