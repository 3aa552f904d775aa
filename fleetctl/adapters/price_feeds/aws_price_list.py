"""Plan, adapters layer: `PriceFeed` of AWS' price list (GetProducts of the pricing service, which needs credentials). On demand, Linux.

Source: AWS Price List Query API: PriceList holds JSON texts with product.attributes and terms.OnDemand.*.priceDimensions.*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from fleetctl.errors import InventoryFailed
from fleetctl.ports.prices import Quote

NAME = "AWS price list"
FILTERS = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}


class AwsPriceList:
    """Asks SKU by SKU.

    Args:
        endpoint: another one than AWS' (a double), "" for AWS; today: ISO date of the quotes.
    """

    def __init__(self, today: str, endpoint: str = "") -> None:
        self._today, self._endpoint = today, endpoint

    def quotes(self, skus: Sequence[str]) -> Iterator[Quote]:
        """Yield the quotes of these SKUs."""
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client = boto3.client("pricing", region_name="us-east-1", endpoint_url=self._endpoint or None)
            for sku in skus:
                wanted = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in {**FILTERS, "instanceType": sku}.items()]
                for page in client.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=wanted):
                    if "PriceList" not in page:
                        raise _nonsense()
                    for text in page["PriceList"]:
                        yield from self._of(text, sku)
        except (BotoCoreError, ClientError, ValueError) as e:
            text = f"{NAME} cannot be read: {str(e)[:200]}."
            raise InventoryFailed("catalog.feed", text, hint="The dated rows that are here still count: fleetctl catalog check") from e

    def _of(self, text: str, sku: str) -> Iterator[Quote]:
        try:
            row: Mapping[str, Any] = json.loads(text)
            attributes = row["product"]["attributes"]
            terms = row["terms"].get("OnDemand", {})
            dimensions = [d for t in terms.values() for d in t["priceDimensions"].values()]
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise _nonsense() from e
        if attributes.get("instanceType") != sku:
            return
        for d in dimensions:
            (currency, amount), *_ = [*d.get("pricePerUnit", {}).items()] or [("", "0")]
            try:
                value = Decimal(str(amount))
            except InvalidOperation:
                value = Decimal(0)
            yield Quote(
                book="list",
                sku=sku,
                region=str(attributes.get("regionCode", "")),
                amount=value,
                currency=str(currency),
                unit=str(d.get("unit", "")),
                source=f"{NAME}: {str(d.get('rateCode', ''))[:80]}",
                as_of=self._today,
            )


def _nonsense() -> InventoryFailed:
    return InventoryFailed("catalog.feed", f"{NAME} answered something else than prices.", hint="The dated rows that are here still count")
