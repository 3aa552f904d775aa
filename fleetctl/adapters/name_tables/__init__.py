"""Assess, adapter layer: reads CUDA names out of a HIPIFY checkout's Markdown tables. Never runs anything of it, never fetches one."""

from fleetctl.adapters.name_tables.hipify import ImportedNames, import_names

__all__ = ["ImportedNames", "import_names"]
