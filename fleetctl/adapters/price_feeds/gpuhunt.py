"""Plan, adapters layer: `PriceFeed` of a gpuhunt catalogue: a zip of CSV files per provider, on disk or by URL.

Source: dstackai/gpuhunt: columns instance_name, location, price (USD per hour), spot. Its memory columns are not read: they are per GPU in
one record and total in others (dstackai/gpuhunt PR 262).
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path

from fleetctl.adapters.price_feeds.web import get
from fleetctl.errors import InventoryFailed
from fleetctl.ports.prices import Quote

NAME = "gpuhunt"
COLUMNS = {"instance_name", "location", "price", "spot"}
MOST_TEXT = 256 * 1024 * 1024


class Gpuhunt:
    """Reads a whole catalogue.

    Args:
        place: a file, or a URL (https, or http on loopback); today: ISO date of the quotes.
    """

    def __init__(self, today: str, place: str) -> None:
        self._today, self._place = today, place

    def quotes(self, skus: Sequence[str]) -> Iterator[Quote]:
        """Yield the quotes of these SKUs."""
        wanted = set(skus)
        tables = 0
        try:
            data = get(self._place, NAME) if "://" in self._place else Path(self._place).read_bytes()
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if sum(i.file_size for i in archive.infolist()) > MOST_TEXT:
                    raise InventoryFailed("catalog.feed", f"{NAME}'s catalogue is too large.", hint="Name another file")
                for info in archive.infolist():
                    if not info.filename.endswith(".csv"):
                        continue
                    reader = csv.DictReader(archive.read(info).decode("utf-8").splitlines())
                    if set(reader.fieldnames or ()) >= COLUMNS:
                        tables += 1
                        yield from (self._quote(row, info.filename) for row in reader if row["instance_name"] in wanted)
        except (OSError, zipfile.BadZipFile, UnicodeDecodeError, csv.Error, zlib.error, RuntimeError) as e:
            raise InventoryFailed("catalog.feed", f"{NAME}'s catalogue cannot be read: {e}.", hint="Name another file or URL") from e
        if not tables:
            text = f"{NAME}'s catalogue has no table with {', '.join(sorted(COLUMNS))}."
            raise InventoryFailed("catalog.feed", text, hint="Name another file or URL")

    def _quote(self, row: Mapping[str, str | None], name: str) -> Quote:
        try:
            amount = Decimal(row["price"] or "0")
        except InvalidOperation:
            amount = Decimal(0)
        return Quote(
            book="spot" if (row["spot"] or "").lower() == "true" else "list",
            sku=row["instance_name"] or "",
            region=row["location"] or "",
            amount=amount,
            currency="USD",
            unit="1 Hour",
            source=f"{NAME}: {name[:60]}",
            as_of=self._today,
        )
