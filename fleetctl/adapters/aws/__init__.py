"""Inventory, adapter layer: AWS instances, groups, balancers' targets, reservations and quotas, region by region. Never writes to AWS."""
