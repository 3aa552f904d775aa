"""The shipped catalogue: prices with source and date, unknown stays None, bad rows are all named."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fleetctl.catalog import load_catalog
from fleetctl.catalog.loader import parse_catalog
from fleetctl.errors import ConfigInvalid

GPUS = "gpu,vendor,vram_gib,memory_bandwidth_tb_s,bf16_dense_tflops,fp8_dense_tflops,tdp_w,target,kind,source,as_of"
SKUS = "cloud,sku,gpu,accelerators,vram_gib,vcpu,ram_gib,kind,source,as_of"


def tables(skus: list[str], prices: list[str]) -> dict[str, list[str]]:
    return {
        "gpus.csv": [GPUS, "MI300X,amd,192,5.3,1307,2615,750,gfx942,vendor,sheet,2026-11-30"],
        "skus.csv": [SKUS, *skus],
        "prices.csv": ["sku,region,usd_per_hour,source", *prices],
        "price_sources.csv": ["source,book,kind,as_of,where", "book,list,vendor,2026-06-18,somewhere"],
    }


def test_every_row_has_source_and_date_and_no_price_is_zero() -> None:
    catalog = load_catalog()
    assert all(s.source and s.as_of for s in catalog.skus)
    assert all(p.source and p.as_of and p.usd_per_hour > 0 for p in catalog.prices)
    assert all(g.source and g.as_of for g in catalog.gpus)
    assert len({s.name for s in catalog.skus}) == len(catalog.skus) == 58


def test_prices_are_those_of_the_sources() -> None:
    catalog = load_catalog()
    assert {r: catalog.price("Standard_ND96isr_MI300X_v5", r).usd_per_hour for r in ("eastus2", "swedencentral", "brazilsouth")} == {  # type: ignore[union-attr]
        "eastus2": Decimal("48.0"),
        "swedencentral": Decimal("67.2"),
        "brazilsouth": Decimal("96.0"),
    }
    assert catalog.price("BM.GPU.MI300X.8", "us-ashburn-1").usd_per_hour == 48  # type: ignore[union-attr]


def test_an_unknown_price_is_none_never_zero() -> None:
    catalog = load_catalog()
    assert catalog.price("Standard_ND96isr_MI300X_v5", "westeurope-9") is None
    assert catalog.price("p5e.48xlarge", "us-east-1") is None
    sku = catalog.sku("p5e.48xlarge")
    assert sku is not None
    assert sku.price_usd_per_hour is None


def test_lab_rows_are_named_emulated_and_carry_their_stand_ins_price() -> None:
    catalog = load_catalog()
    for name, of in (("lab-nvidia", "Standard_ND96isr_H100_v5"), ("lab-mi300x", "Standard_ND96isr_MI300X_v5")):
        sku, price, real = catalog.sku(name), catalog.price(name, "lab"), catalog.price(of, "eastus2")
        assert sku is not None
        assert price is not None
        assert real is not None
        assert (sku.cloud, sku.accelerators) == ("lab", 8)
        assert "emulated" in sku.source
        assert "emulated" in price.source
        assert price.usd_per_hour == real.usd_per_hour


def test_the_id_follows_the_rows() -> None:
    one = parse_catalog(tables(["c,a,MI300X,8,192,,,vendor,s,2026-01-01"], ["a,*,48,book"]))
    dearer = parse_catalog(tables(["c,a,MI300X,8,192,,,vendor,s,2026-01-01"], ["a,*,49,book"]))
    assert one.id != dearer.id
    assert one.price_book_id != dearer.price_book_id
    assert one.id == parse_catalog(tables(["c,a,MI300X,8,192,,,vendor,s,2026-01-01"], ["a,*,48,book"])).id
    assert load_catalog().id.startswith("c")


def test_every_bad_row_is_named_at_once() -> None:
    bad = tables(
        [
            "c,a,MI300X,8,192,,,vendor,s,2026-01-01",
            "c,a,MI300X,8,192,,,vendor,s,2026-01-01",
            "c,b,H900,8,192,,,vendor,s,2026-01-01",
            "c,d,MI300X,0,192,,,vendor,s,2026-01-01",
        ],
        ["a,*,0,book", "a,x,nan,book", "a,y,48,book", "a,y,49,book", "zz,*,1,book", "a,q,1,nobody"],
    )
    with pytest.raises(ConfigInvalid) as caught:
        parse_catalog(bad)
    assert caught.value.code == "catalog.broken"
    places = [d.split(" ")[0] for d in caught.value.details]
    assert places == [
        "prices.csv:2:",
        "prices.csv:3:",
        "prices.csv:5:",
        "prices.csv:7:",
        "skus.csv:3:",
        "skus.csv:4:",
        "skus.csv:5:",
        "prices.csv:",
    ]
