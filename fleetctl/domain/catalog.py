"""Assess and plan, domain layer: what is known of accelerators, VM sizes and prices, each row with source and date. Never I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from fleetctl.domain.canonical import LATER
from fleetctl.domain.pool import Sku, Vendor

ANY_REGION = "*"
"""Region of a price that holds wherever the SKU is sold."""
PRICE_DAYS = 180
"""Age from which a list price is stale. Source: one accelerator's prices were halved within a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator.

    Args:
        vram_gib: memory of one device in GiB (vendors write GB; an H200 of "141 GB" reports 144,384 MiB = 141 GiB).
        memory_bandwidth_tb_s: terabytes per second; None where unpublished.
        bf16_dense_tflops, fp8_dense_tflops: without sparsity; None where unpublished or unsupported.
        target: compiler target, such as "gfx942" or "sm_90".
        all_in_kw: draw of the facility per GPU (host, network, cooling); None where only the TDP is known.
        cooling: "air" or "liquid" (it needs liquid at its full power); "" where unknown.
        kind: measured, vendor, derived or bound.
    """

    name: str
    vendor: Vendor
    vram_gib: float
    memory_bandwidth_tb_s: float | None
    bf16_dense_tflops: float | None
    fp8_dense_tflops: float | None
    tdp_w: int | None
    target: str
    source: str
    as_of: str
    all_in_kw: float | None = None
    cooling: str = ""
    kind: str = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """What one accelerator was measured to do.

    Args:
        klass: SLO class: batch (offline), online (server), realtime (interactive).
        tokens_per_s: per accelerator at that SLO; kind: measured (by a third party) or vendor.
        engine: with its version; as_of: of the round or run (ISO date).
        ttft_p95_ms, tpot_p95_ms: to the first token and per token after it, of a user's own run; None where nobody measured them.
    """

    gpu: str
    model: str
    precision: str
    klass: str
    tokens_per_s: float
    kind: str
    engine: str
    source: str
    as_of: str
    ttft_p95_ms: float | None = field(default=None, metadata=LATER)
    tpot_p95_ms: float | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one VM costs per hour in one region; a price that is not known has no row.

    Args:
        region: cloud region, or `ANY_REGION`.
        usd_per_hour: of the whole VM, above 0.
        kind: which price book: "list" is nobody's bill; origin: measured, vendor, derived or bound.
    """

    sku: str
    region: str
    usd_per_hour: Decimal
    kind: str
    source: str
    as_of: str
    origin: str = field(default="", metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Every row, immutable.

    Args:
        id: "c" and 11 hex digits of the digest of all rows; price_book_id: kind, newest date and digest of the prices.
    """

    id: str
    price_book_id: str
    gpus: tuple[Gpu, ...]
    skus: tuple[Sku, ...]
    prices: tuple[Price, ...]
    performance: tuple[Performance, ...] = ()

    def gpu(self, name: str) -> Gpu | None:
        """Return the accelerator of that exact name, None where the catalogue has none."""
        return next((g for g in self.gpus if g.name == name), None)

    def sku(self, name: str) -> Sku | None:
        """Return the SKU of that exact name, None where the catalogue has none."""
        return next((s for s in self.skus if s.name == name), None)

    def price(self, sku: str, region: str) -> Price | None:
        """Return the price of a SKU in a region, else its price for any region, else None: unknown is never 0."""
        mine = [p for p in self.prices if p.sku == sku]
        exact = next((p for p in mine if p.region == region), None)
        return exact or next((p for p in mine if p.region == ANY_REGION), None)
