"""Every step, catalogue layer: rows with source and date. Never a network call."""

from fleetctl.catalog.loader import load_catalog

__all__ = ["load_catalog"]
