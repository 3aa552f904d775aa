"""Plan, ports layer: what tells today's prices. Never an implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a feed says of one SKU in one region.

    Args:
        book: list or spot; amount: USD per VM and hour as it was given, 0 where the feed says 0; as_of: ISO date.
    """

    book: str
    sku: str
    region: str
    amount: Decimal
    currency: str
    unit: str
    source: str
    as_of: str


class PriceFeed(Protocol):
    """A price list that can be asked. Raises InventoryFailed (catalog.feed) where it does not answer or answers nonsense."""

    def quotes(self, skus: Sequence[str]) -> Iterator[Quote]:
        """Yield the quotes of these SKUs; () of one that it does not know."""
        ...
