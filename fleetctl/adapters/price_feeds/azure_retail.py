"""Plan, adapters layer: `PriceFeed` of Azure's retail price API, which needs no credentials. Linux VMs, pay as you go and spot.

Source: learn.microsoft.com, Azure Retail Prices API: Items with armSkuName, armRegionName, retailPrice, currencyCode, unitOfMeasure,
type, skuName, productName; NextPageLink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote, urlsplit

from fleetctl.adapters.price_feeds.web import get_json
from fleetctl.errors import InventoryFailed
from fleetctl.ports.prices import Quote

PUBLIC = "https://prices.azure.com"
NAME = "Azure retail prices"
MOST_PAGES = 200


class AzureRetail:
    """Asks SKU by SKU, page by page.

    Args:
        endpoint: another one than Azure's (a double); today: ISO date of the quotes.
    """

    def __init__(self, today: str, endpoint: str = PUBLIC) -> None:
        self._today, self._endpoint = today, endpoint.rstrip("/")

    def quotes(self, skus: Sequence[str]) -> Iterator[Quote]:
        """Yield the quotes of these SKUs."""
        for sku in skus:
            if all(c.isalnum() or c in "._-" for c in sku):
                yield from self._of(sku)

    def _of(self, sku: str) -> Iterator[Quote]:
        wanted = f"serviceName eq 'Virtual Machines' and armSkuName eq '{sku}' and priceType eq 'Consumption'"
        url = f"{self._endpoint}/api/retail/prices?$filter={quote(wanted)}"
        for _ in range(MOST_PAGES):
            page = get_json(url, NAME)
            items = page.get("Items")
            if not isinstance(items, list):
                raise InventoryFailed(
                    "catalog.feed", f"{NAME} answered no list of prices.", hint="The dated rows that are here still count"
                )
            for item in items:
                if isinstance(item, dict) and (found := self._quote(item, sku)) is not None:
                    yield found
            url = str(page.get("NextPageLink") or "")
            if not url:
                return
            if urlsplit(url).hostname != urlsplit(self._endpoint).hostname:
                raise InventoryFailed("catalog.feed", f"{NAME} points to another host.", hint="The dated rows that are here still count")

    def _quote(self, item: Mapping[str, Any], sku: str) -> Quote | None:
        name, product = str(item.get("skuName", "")), str(item.get("productName", ""))
        if item.get("type") != "Consumption" or item.get("armSkuName") != sku or "Windows" in product or "Low Priority" in name:
            return None
        try:
            amount = Decimal(str(item.get("retailPrice")))
        except InvalidOperation:
            amount = Decimal(0)
        return Quote(
            book="spot" if "Spot" in name else "list",
            sku=sku,
            region=str(item.get("armRegionName", "")),
            amount=amount,
            currency=str(item.get("currencyCode", "")),
            unit=str(item.get("unitOfMeasure", "")),
            source=f"{NAME}: {str(item.get('meterId', ''))[:60]}",
            as_of=self._today,
        )
