"""Inventory, adapter layer: Azure's VMs, scale sets, sizes and quotas, region by region. Never writes to Azure."""
