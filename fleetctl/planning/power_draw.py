"""Plan, pure layer: the all-in draw of accelerators and VMs (host, network and cooling included), never the TDP alone. Never I/O."""

from __future__ import annotations

from fleetctl.domain.catalog import Catalog
from fleetctl.planning.candidates import Site

ALL_IN_OVER_TDP = 2.3
"""Facility draw over the GPU's TDP where no all-in figure is known. Source: planning.md 3 (1.9 to 2.5; its middle, rounded up)."""


def gpu_kw(site: Site, catalog: Catalog) -> float | None:
    """Return the all-in draw of one accelerator in kW; None where neither an all-in figure nor a TDP is known."""
    gpu = catalog.gpu(site.sku.gpu) if site.sku is not None else None
    if gpu is None or (gpu.all_in_kw is None and gpu.tdp_w is None):
        return None
    return gpu.all_in_kw if gpu.all_in_kw is not None else (gpu.tdp_w or 0) * ALL_IN_OVER_TDP / 1000


def vm_kw(site: Site, catalog: Catalog) -> float:
    """Return the all-in draw of one VM in kW; 0 where nothing is known."""
    each = gpu_kw(site, catalog)
    return (each or 0.0) * (site.sku.accelerators if site.sku is not None else 0)
