"""What every price feed keeps, each against a double on loopback that answers in its cloud's own form."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetctl.adapters.own_rows import OwnRows
from fleetctl.adapters.price_feeds.aws_price_list import AwsPriceList
from fleetctl.adapters.price_feeds.azure_retail import AzureRetail
from fleetctl.adapters.price_feeds.gpuhunt import Gpuhunt
from fleetctl.catalog import load_catalog
from fleetctl.catalog.books import load_book
from fleetctl.errors import InventoryFailed
from fleetctl.ports.prices import PriceFeed, Quote
from fleetctl.usecases.catalog import Brought, refresh

TODAY = "2026-11-30"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a price list says of a SKU in a region; each double writes it in its cloud's form."""

    sku: str
    region: str
    amount: str
    currency: str = "USD"
    unit: str = "hour"
    spot: bool = False


@dataclass
class Double:
    """A server on loopback in place of a cloud's API."""

    form: Callable[[Sequence[Row], str, dict[str, object]], bytes]
    rows: Sequence[Row] = ()
    raw: bytes | None = None
    status: int = 200
    asked: list[str] = field(default_factory=list)


def azure(rows: Sequence[Row], path: str, _: dict[str, object]) -> bytes:
    wanted = parse_qs(urlsplit(path).query)["$filter"][0]
    items = [
        {
            "armSkuName": r.sku,
            "armRegionName": r.region,
            "retailPrice": float(r.amount),
            "currencyCode": r.currency,
            "unitOfMeasure": "1 Hour" if r.unit == "hour" else r.unit,
            "type": "Consumption",
            "skuName": f"{r.sku} Spot" if r.spot else r.sku,
            "productName": "Virtual Machines",
            "meterId": "m",
        }
        for r in rows
        if f"'{r.sku}'" in wanted
    ]
    return json.dumps({"Items": items, "NextPageLink": None}).encode()


def aws(rows: Sequence[Row], _: str, body: dict[str, object]) -> bytes:
    filters = body["Filters"]
    assert isinstance(filters, list)
    wanted = next(f["Value"] for f in filters if f["Field"] == "instanceType")
    told = [
        json.dumps(
            {
                "product": {"attributes": {"instanceType": r.sku, "regionCode": r.region}},
                "terms": {
                    "OnDemand": {
                        "t": {
                            "priceDimensions": {
                                "d": {
                                    "unit": "Hrs" if r.unit == "hour" else r.unit,
                                    "rateCode": "r",
                                    "pricePerUnit": {r.currency: r.amount},
                                }
                            }
                        }
                    }
                },
            }
        )
        for r in rows
        if r.sku == wanted and not r.spot
    ]
    return json.dumps({"PriceList": told}).encode()


def gpuhunt(rows: Sequence[Row], _: str, __: dict[str, object]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        lines = [f"{r.sku},{r.region},{r.amount},{r.spot}" for r in rows]
        archive.writestr("azure.csv", "\n".join(["instance_name,location,price,spot", *lines, ""]))
    return out.getvalue()


FORMS = {"azure": azure, "aws": aws, "gpuhunt": gpuhunt}
SKU = {"azure": "Standard_ND96isr_MI300X_v5", "aws": "p5.48xlarge", "gpuhunt": "BM.GPU.MI300X.8"}


@dataclass
class Case:
    name: str
    double: Double
    feed: PriceFeed
    folder: Path

    @property
    def sku(self) -> str:
        return SKU[self.name]

    def row(self, **changes: object) -> Row:
        return Row(**{"sku": self.sku, "region": "us-east-1", "amount": "47.5", **changes})  # type: ignore[arg-type]

    def quotes(self) -> list[Quote]:
        return list(self.feed.quotes([self.sku]))

    def refresh(self) -> Brought:
        catalog = load_catalog()
        return refresh({self.name: self.feed}, catalog, {self.name: tuple({s.cloud for s in catalog.skus})}, OwnRows(self.folder))

    def price(self, region: str) -> Decimal | None:
        found = load_book("list", self.folder).price(self.sku, region)
        return None if found is None else found.usd_per_hour


@pytest.fixture(params=sorted(FORMS))
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "double")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    double = Double(FORMS[request.param])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            double.asked.append(self.path)
            data = double.form(double.rows, self.path, body) if double.raw is None else double.raw
            self.send_response(double.status)
            self.send_header("Content-Type", "application/x-amz-json-1.1" if length else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    feeds: dict[str, PriceFeed] = {
        "azure": AzureRetail(TODAY, url),
        "aws": AwsPriceList(TODAY, url),
        "gpuhunt": Gpuhunt(TODAY, f"{url}/catalog.zip"),
    }
    yield Case(request.param, double, feeds[request.param], tmp_path)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_price_is_told_with_its_region_source_and_day(case: Case) -> None:
    case.double.rows = [case.row(), case.row(region="eu-west-1", amount="60"), case.row(sku="not-wanted")]
    found = case.quotes()
    assert [(q.sku, q.region, q.amount, q.book, q.currency, q.as_of) for q in found] == [
        (case.sku, "us-east-1", Decimal("47.5"), "list", "USD", TODAY),
        (case.sku, "eu-west-1", Decimal(60), "list", "USD", TODAY),
    ]
    assert all(q.source for q in found)


def test_what_is_not_known_has_no_price_and_that_is_no_failure(case: Case) -> None:
    case.double.rows = [case.row(sku="other")]
    assert case.quotes() == []
    done = case.refresh()
    assert (done.rows, done.failed, done.refused) == (0, (), ())


@pytest.mark.parametrize("amount", ["0", "-1", "0.0000000000"])
def test_nothing_is_free(case: Case, amount: str) -> None:
    before = case.price("us-east-1")
    case.double.rows = [case.row(amount=amount)]
    done = case.refresh()
    assert (done.rows, len(done.refused)) == (0, 1)
    assert "not a price above 0" in done.refused[0]
    assert case.price("us-east-1") == before


def test_another_currency_or_unit_is_refused_by_name(case: Case) -> None:
    if case.name == "gpuhunt":
        pytest.skip("its catalogue has one currency and one unit, and tells neither")
    case.double.rows = [case.row(currency="EUR"), case.row(region="eu-west-1", unit="1 Month")]
    done = case.refresh()
    assert done.rows == 0
    assert ["EUR is not USD" in done.refused[0], "is not an hour" in done.refused[1]] == [True, True]


def test_what_came_stands_before_the_shipped_rows_and_again_changes_nothing(case: Case) -> None:
    case.double.rows = [case.row(region="mars-1", amount="33")]
    assert (case.refresh().new, case.refresh().new, case.refresh().changed) == (1, 0, 0)
    assert case.price("mars-1") == Decimal(33)
    case.double.rows = [case.row(region="mars-1", amount="34")]
    assert case.refresh().changed == 1
    assert case.price("mars-1") == Decimal(34)
    assert load_book("list", case.folder).price_book_id.startswith(f"list-{TODAY}-")


def test_hostile_text_is_kept_out(case: Case) -> None:
    case.double.rows = [case.row(region="eu\x1b[2J"), case.row(region="x" * 500), case.row(region="../../etc")]
    done = case.refresh()
    assert done.rows == 0
    assert not any(not c.isprintable() for text in done.refused for c in text.replace("\x1b", "?"))


@pytest.mark.parametrize(("raw", "status"), [(b"<html>no</html>", 200), (b"", 200), (b"{}", 503), (b'{"PriceList":["{}"],"Items":4}', 200)])
def test_a_feed_that_fails_says_so_and_changes_nothing(case: Case, raw: bytes, status: int) -> None:
    case.double.raw, case.double.status = raw, status
    with pytest.raises(InventoryFailed) as caught:
        case.quotes()
    assert caught.value.code == "catalog.feed"
    done = case.refresh()
    assert (done.rows, len(done.failed)) == (0, 1)
    assert not (case.folder / "prices.csv").exists()
