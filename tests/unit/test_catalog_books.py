"""Price books, a workspace's own rows, what is refused, what is stale, importers; feeds of prices against doubles on loopback."""

from __future__ import annotations

import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetctl.adapters.own_rows import OwnRows
from fleetctl.adapters.price_feeds.aws_price_list import AwsPriceList
from fleetctl.adapters.price_feeds.azure_retail import AzureRetail
from fleetctl.adapters.price_feeds.gpuhunt import Gpuhunt
from fleetctl.catalog import load_catalog
from fleetctl.catalog.books import book_names, load_book, load_books
from fleetctl.catalog.check import check_catalog
from fleetctl.catalog.parts import memory_fault, vram_gib
from fleetctl.catalog.rows import price_row
from fleetctl.catalog.table import numbered
from fleetctl.domain.catalog import Price
from fleetctl.errors import ConfigInvalid, InventoryFailed
from fleetctl.planning.speed import Speeds
from fleetctl.ports.prices import PriceFeed
from fleetctl.usecases.catalog import import_prices, import_runs, refresh
from tests.cases.planning_fleet import cell, lab_fleet, plan_of, pool, workload

MI300X = "Standard_ND96isr_MI300X_v5"
CLOUDS = {"azure": ("azure",), "aws": ("aws",), "gpuhunt": ("azure", "aws", "oci")}


def price(catalog: str | Path | None, sku: str, region: str, book: str = "list") -> Decimal | None:
    found = load_book(book, Path(catalog) if catalog else None).price(sku, region)
    return None if found is None else found.usd_per_hour


def test_the_shipped_list_is_the_shipped_catalogue() -> None:
    assert load_book() is load_catalog()
    assert set(load_books()) == {"list", "owned", "owned-neocloud", "rental-3y", "spot"}


def test_a_book_says_only_what_it_knows() -> None:
    assert price(None, MI300X, "swedencentral", "owned") == Decimal("8.96")
    assert price(None, "p5en.48xlarge", "us-east-2", "spot") == Decimal("26.57")
    assert price(None, MI300X, "swedencentral", "spot") == Decimal("67.2")
    assert load_book("owned").price_book_id.startswith("owned-")
    sku = load_book("owned").sku(MI300X)
    assert sku is not None
    assert sku.price_usd_per_hour == Decimal("8.96")


def test_a_book_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="no price book 'contrakt'"):
        load_book("contrakt")


def test_own_rows_stand_before_shipped_ones(tmp_path: Path) -> None:
    rows = OwnRows(tmp_path)
    table = [
        {"sku": MI300X, "region": "eastus2", "usd_per_gpu_hour": "3.10"},
        {"sku": "p5.48xlarge", "usd_per_hour": "30"},
    ]
    done = import_prices(numbered(table), load_catalog(), rows, book="contract", source="offer 7", as_of="2026-11-01")
    assert (done.new, done.changed) == (2, 0)
    assert import_prices(numbered(table), load_catalog(), rows, book="contract", source="offer 7", as_of="2026-11-01").new == 0
    assert price(tmp_path, MI300X, "eastus2", "contract") == Decimal("24.8")
    assert price(tmp_path, MI300X, "swedencentral", "contract") == Decimal("67.2")
    assert price(tmp_path, "p5.48xlarge", "us-east-1", "contract") == Decimal(30)
    assert price(tmp_path, MI300X, "eastus2") == Decimal(48)
    assert "contract" in book_names(tmp_path)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"sku": MI300X, "usd_per_hour": "0"}, "not a price above 0"),
        ({"sku": MI300X, "usd_per_hour": ""}, "exactly one of usd_per_hour"),
        ({"sku": MI300X, "usd_per_hour": "NaN"}, "not a price above 0"),
        ({"sku": MI300X, "usd_per_hour": "1", "usd_per_gpu_hour": "1"}, "exactly one of usd_per_hour"),
        ({"sku": MI300X, "price": "4"}, "exactly one of usd_per_hour"),
        ({"sku": MI300X, "usd_per_hour": "480000"}, "past belief"),
        ({"sku": "Standard_ND96", "usd_per_hour": "4"}, "no SKU"),
        ({"sku": MI300X, "usd_per_hour": "4", "as_of": "yesterday"}, "is no date"),
        ({"sku": MI300X, "usd_per_hour": "4", "source": "a\x1b[2J"}, "control character"),
        ({"sku": MI300X, "usd_per_hour": "4", "book": "Our Book"}, "no name of a price book"),
    ],
)
def test_bad_prices_are_refused_all_or_none(tmp_path: Path, row: dict[str, str], why: str) -> None:
    good = {"sku": "p5.48xlarge", "usd_per_hour": "30"}
    with pytest.raises(ConfigInvalid) as caught:
        import_prices(numbered([good, row]), load_catalog(), OwnRows(tmp_path), book="contract", source="x", as_of="2026-11-01")
    assert why in caught.value.details[0]
    assert caught.value.details[0].startswith("line 3:")
    assert not (tmp_path / "prices.csv").exists()


def test_a_broken_own_file_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text(f"book,sku,region,usd_per_hour,source,as_of\nlist,{MI300X},eastus2,0,x,2026-11-01\n")
    with pytest.raises(ConfigInvalid) as caught:
        load_book("list", tmp_path)
    assert caught.value.details == ("prices.csv:2: '0' is not a price above 0; leave the row out where none is known",)


@pytest.mark.parametrize(
    ("row", "gib"),
    [({"vram_gib": "192"}, 192.0), ({"vram_gb": "206.16"}, 192.0), ({"vram_mib": "144384"}, 141.0), ({"vram": "80"}, None), ({}, None)],
)
def test_memory_needs_a_known_unit(row: dict[str, str], gib: float | None) -> None:
    found, fault = vram_gib(row)
    assert found == (None if gib is None else pytest.approx(gib, abs=0.01))
    assert bool(fault) == (gib is None)


@pytest.mark.parametrize(("vram", "word"), [(192, ""), (1536, "of all 8"), (206.2, "looks like GB"), (80, "is not what one"), (179.1, "")])
def test_memory_of_a_size_is_held_against_its_gpu(vram: float, word: str) -> None:
    fault = memory_fault(vram, 192.0, 8, "MI300X")
    assert (word in fault) if word else fault == ""


def test_the_shipped_catalogue_has_no_error_and_old_rows_are_named() -> None:
    found = check_catalog(load_catalog(), date(2026, 11, 30))
    assert [d for d in found if d.severity == "error"] == []
    later = check_catalog(load_catalog(), date(2028, 11, 30))
    assert sum(d.code == "catalog.stale" for d in later) > sum(d.code == "catalog.stale" for d in found)
    assert {d.path for d in found if d.code == "catalog.announced"} == {"MI430X", "MI455X"}


def test_a_price_of_zero_or_twice_is_an_error() -> None:
    base = load_catalog()
    free = Price(sku=MI300X, region="x", usd_per_hour=Decimal(0), kind="list", source="s", as_of="2026-11-01", origin="vendor")
    found = check_catalog(replace(base, prices=(*base.prices, free, free)), date(2026, 11, 30))
    assert {d.code for d in found if d.severity == "error"} == {"catalog.price", "catalog.twice"}


def test_an_announced_gpu_is_refused_for_placement() -> None:
    pools = (
        pool("nvidia-lab", "nvidia", "lab-nvidia", count=2),
        pool("rack", "amd", "helios-mi455x-72", count=0, limit=1, by="lab", price="10"),
    )
    fleet = lab_fleet(pools=pools, workloads=(workload("a", replicas=2),), cells=(cell("a-lab", "a"),))
    (outcome,) = plan_of(fleet).outcomes
    assert (outcome.kind, outcome.reason.code) == ("infeasible", "catalog.announced")


def test_own_runs_come_before_the_catalogue(tmp_path: Path) -> None:
    runs = [
        {"gpu": g, "model": "llama-3.1-70b", "precision": "fp8", "class": "online", "tokens_per_s_per_gpu": v, "engine": "vLLM 0.11"}
        for g, v in (("MI300X", "900"), ("H100 SXM", "1000"))
    ]
    import_runs(numbered(runs), load_catalog(), OwnRows(tmp_path), source="fleetctl bench", as_of="2026-11-20")
    catalog = load_book("list", tmp_path)
    w = workload("a", klass="online")
    w = replace(w, model=replace(w.model, name="meta-llama/Llama-3.1-70B-Instruct", precision="fp8"))
    h100, mi300x = catalog.sku("p5.48xlarge"), catalog.sku(MI300X)
    assert h100 is not None
    assert mi300x is not None
    speed = Speeds(catalog)(w, h100, mi300x)
    assert speed.factor == pytest.approx(0.9)
    assert speed.kind == "measured"
    assert speed.source.startswith("own runs")
    assert Speeds(load_catalog())(w, h100, mi300x).kind != "measured"


def test_a_price_row_must_name_a_region_and_a_source() -> None:
    row = {"book": "list", "sku": MI300X, "region": "", "usd_per_hour": "4", "source": "", "as_of": "2026-11-01"}
    assert price_row(row, {MI300X}) == (None, "region and source must be told")


# feeds -----------------------------------------------------------------------------------------------------------------


@contextmanager
def double(answer: dict[str, object], *, post: bool = False) -> Iterator[tuple[str, list[str]]]:
    """A server on loopback that gives one answer per path and remembers what it was asked; in place of a cloud's API."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self._send(answer.get(urlsplit(self.path).path))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            wanted = next(f["Value"] for f in body["Filters"] if f["Field"] == "instanceType")
            asked.append(wanted)
            self._send(answer.get(wanted, {"PriceList": []}))

        def _send(self, value: object) -> None:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(404 if value is None else 200)
            self.send_header("Content-Type", "application/x-amz-json-1.1" if post else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def item(**changes: object) -> dict[str, object]:
    return {
        "armSkuName": MI300X,
        "armRegionName": "eastus2",
        "retailPrice": 47.5,
        "currencyCode": "USD",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "skuName": "ND96isr MI300X v5",
        "productName": "Virtual Machines NDISR MI300X v5 Series",
        "meterId": "m1",
    } | changes


def only(catalog_skus: tuple[str, ...], feed: PriceFeed, folder: Path, name: str = "azure"):  # type: ignore[no-untyped-def]
    base = load_catalog()
    some = replace(base, skus=tuple(s for s in base.skus if s.name in catalog_skus))
    return refresh({name: feed}, some, CLOUDS, OwnRows(folder))


def test_azure_prices_are_asked_and_what_is_no_price_of_a_linux_hour_is_left_out(tmp_path: Path) -> None:
    items = [
        item(),
        item(armRegionName="westus3", retailPrice=0),
        item(armRegionName="westus", currencyCode="EUR"),
        item(armRegionName="northeurope", unitOfMeasure="1 Month"),
        item(productName="Virtual Machines NDISR MI300X v5 Series Windows", retailPrice=99),
        item(type="Reservation", retailPrice=1),
        item(skuName="ND96isr MI300X v5 Low Priority", retailPrice=2),
        item(skuName="ND96isr MI300X v5 Spot", retailPrice=9.6),
    ]
    with double({"/api/retail/prices": {"Items": items, "NextPageLink": None}}) as (url, asked):
        done = only((MI300X,), AzureRetail("2026-11-30", url), tmp_path)
    assert parse_qs(urlsplit(asked[0]).query)["$filter"][0].count(MI300X) == 1
    assert (done.rows, len(done.refused), done.failed) == (2, 3, ())
    assert price(tmp_path, MI300X, "eastus2") == Decimal("47.5")
    assert price(tmp_path, MI300X, "eastus2", "spot") == Decimal("9.6")
    assert price(tmp_path, MI300X, "westus3") == Decimal("48")
    assert load_book("list", tmp_path).price_book_id.startswith("list-2026-11-30-")


def test_two_prices_of_one_size_and_region_keep_the_dearer_and_say_so(tmp_path: Path) -> None:
    with double({"/api/retail/prices": {"Items": [item(retailPrice=50), item(retailPrice=47.5)]}}) as (url, _):
        done = only((MI300X,), AzureRetail("2026-11-30", url), tmp_path)
    assert "a second list price" in done.refused[0]
    assert price(tmp_path, MI300X, "eastus2") == Decimal(50)


@pytest.mark.parametrize("answer", [{}, {"/api/retail/prices": b"<html>"}, {"/api/retail/prices": [1]}])
def test_a_feed_that_does_not_answer_changes_nothing(tmp_path: Path, answer: dict[str, object]) -> None:
    with double(answer) as (url, _):
        done = only((MI300X,), AzureRetail("2026-11-30", url), tmp_path)
    assert done.rows == 0
    assert len(done.failed) == 1
    assert not (tmp_path / "prices.csv").exists()


def test_a_next_page_on_another_host_is_not_followed(tmp_path: Path) -> None:
    page = {"Items": [item()], "NextPageLink": "https://elsewhere.example/api"}
    with double({"/api/retail/prices": page}) as (url, _):
        done = only((MI300X,), AzureRetail("2026-11-30", url), tmp_path)
    assert "another host" in done.failed[0]


def test_plain_http_is_for_loopback_alone() -> None:
    with pytest.raises(InventoryFailed, match="is not https"):
        list(AzureRetail("2026-11-30", "http://prices.example").quotes([MI300X]))


def test_aws_prices_come_from_the_price_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "double")
    row = {
        "product": {"attributes": {"instanceType": "p5.48xlarge", "regionCode": "us-east-1"}},
        "terms": {"OnDemand": {"t": {"priceDimensions": {"d": {"unit": "Hrs", "rateCode": "r", "pricePerUnit": {"USD": "54.0"}}}}}},
    }
    with double({"p5.48xlarge": {"PriceList": [json.dumps(row)]}}, post=True) as (url, asked):
        done = only(("p5.48xlarge",), AwsPriceList("2026-11-30", url), tmp_path, "aws")
    assert asked == ["p5.48xlarge"]
    assert (done.rows, done.failed) == (1, ())
    assert price(tmp_path, "p5.48xlarge", "us-east-1") == Decimal(54)


def test_a_gpuhunt_catalogue_is_read_from_a_file(tmp_path: Path) -> None:
    archive = tmp_path / "catalog.zip"
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr(
            "oci.csv", "instance_name,location,price,gpu_memory,spot\nBM.GPU.MI300X.8,us-ashburn-1,46.4,1536,False\nother,x,1,1,False\n"
        )
    done = only(("BM.GPU.MI300X.8",), Gpuhunt("2026-11-30", str(archive)), tmp_path / "own", "gpuhunt")
    assert done.rows == 1
    assert price(tmp_path / "own", "BM.GPU.MI300X.8", "us-ashburn-1") == Decimal("46.4")
    with pytest.raises(InventoryFailed, match="cannot be read"):
        list(Gpuhunt("2026-11-30", str(tmp_path / "none.zip")).quotes(["x"]))
