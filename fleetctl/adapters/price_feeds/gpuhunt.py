"""Plan, adapters layer: `PriceFeed` of a gpuhunt catalogue: a zip of CSV files per provider, on disk or by URL.

Source: dstackai/gpuhunt: columns instance_name, location, price (USD per hour), spot. Its memory columns are not read: they are per GPU in
one record and total in others (dstackai/gpuhunt PR 262).
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator, Sequence
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
        try:
            data = get(self._place, NAME) if "://" in self._place else Path(self._place).read_bytes()
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if sum(i.file_size for i in archive.infolist()) > MOST_TEXT:
                    raise InventoryFailed("catalog.feed", f"{NAME}'s catalogue is too large.", hint="Name another file")
                for info in archive.infolist():
                    if info.filename.endswith(".csv"):
                        yield from self._of(archive.read(info).decode("utf-8"), info.filename, wanted)
        except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as e:
            raise InventoryFailed("catalog.feed", f"{NAME}'s catalogue cannot be read: {e}.", hint="Name another file or URL") from e

    def _of(self, text: str, name: str, wanted: set[str]) -> Iterator[Quote]:
        reader = csv.DictReader(text.splitlines())
        if not set(reader.fieldnames or ()) >= COLUMNS:
            return
        for row in reader:
            if row["instance_name"] not in wanted:
                continue
            try:
                amount = Decimal(row["price"] or "0")
            except InvalidOperation:
                amount = Decimal(0)
            yield Quote(
                book="spot" if row["spot"].lower() == "true" else "list",
                sku=row["instance_name"],
                region=row["location"],
                amount=amount,
                currency="USD",
                unit="1 Hour",
                source=f"{NAME}: {name[:60]}",
                as_of=self._today,
            )
