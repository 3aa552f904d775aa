"""Composition root, inventory, assessment and planning. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.endpoint import Endpoint
    from fleetctl.adapters.name_tables import ImportedNames
    from fleetctl.adapters.own_rows import OwnRows
    from fleetctl.domain.catalog import Catalog
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.pool import Host
    from fleetctl.ports.capacity import PartedDiscovery, ScanRecords
    from fleetctl.ports.portability import CopyWriter
    from fleetctl.ports.prices import PriceFeed
    from fleetctl.usecases.assess import AssessPorts, Price

from fleetctl.wiring.base import STACKS, STATE, Base, shipped  # noqa: F401


class See(Base):
    """Sources of the inventory, the assessment and the planner."""

    @property
    def names_file(self) -> Path | None:
        """Return the workspace's own table of CUDA names, None where it has none."""
        own = self.workspace / STATE / "catalog" / "hip_api.csv"
        return own if own.is_file() else None

    def assess_ports(self, *, probe: bool, keep: bool) -> AssessPorts:
        """Return all that assessing touches.

        Args:
            probe: with compilers; keep: with the store, which is made where there is none.
        """
        from fleetctl.adapters.probes import HipProbe, TritonProbe
        from fleetctl.adapters.source_tree import SourceTreeReader
        from fleetctl.catalog.portability import load_rule_book
        from fleetctl.usecases.assess import AssessPorts

        book = load_rule_book(self.names_file)
        return AssessPorts(
            tree=SourceTreeReader(),
            book=book,
            clock=self.clock,
            actor=self.actor,
            records=self.store if keep else None,
            store=self.store if keep else None,
            probes=(HipProbe(book.names), TritonProbe()) if probe else (),
        )

    def copy_writer(self) -> CopyWriter:
        """Return what writes a translated tree."""
        from fleetctl.adapters.source_tree.writer import FolderWriter

        return FolderWriter()

    def import_names(self, checkout: Path) -> ImportedNames:
        """Make the workspace's own table of CUDA names from a HIPIFY checkout."""
        from fleetctl.adapters.name_tables import import_names
        from fleetctl.catalog.portability import shipped_names

        return import_names(checkout, self.state_folder / "catalog" / "hip_api.csv", shipped_names())

    def price(self) -> Price:
        """Return the planner's own price of a workload's replicas on a pool."""
        from fleetctl.planning.cost import share_of

        catalog = self.catalog
        return lambda workload, pool: share_of(workload, pool, catalog)

    @cached_property
    def catalog(self) -> Catalog:
        """Return the catalogue by the price book of the settings, this workspace's own rows before the shipped ones."""
        return self.catalog_of(None)

    def catalog_of(self, book: str | None) -> Catalog:
        """Return the catalogue by a price book, None for that of the settings. Raises ConfigInvalid (catalog.no_book, catalog.own)."""
        from fleetctl.catalog.books import load_book

        return load_book(book or self._price_book, self.own_folder)

    @property
    def own_folder(self) -> Path:
        """Return where this workspace's own catalogue rows are; it need not exist."""
        return self.workspace / STATE / "catalog"

    def endpoint(self, url: str, model: str) -> Endpoint:
        """Return what drives an endpoint; its key is FLEETCTL_BENCH_KEY, where that is set."""
        from fleetctl.adapters.endpoint import Endpoint

        key = os.environ.get("FLEETCTL_BENCH_KEY")
        return Endpoint(url, model, key=None if not key else lambda: key)

    def books(self) -> dict[str, Catalog]:
        """Return the catalogue by every price book."""
        from fleetctl.catalog.books import load_books

        return load_books(self.own_folder)

    @property
    def own_rows(self) -> OwnRows:
        """Return the writer of this workspace's own rows."""
        from fleetctl.adapters.own_rows import OwnRows

        return OwnRows(self.state_folder / "catalog")

    def price_feeds(self, names: Sequence[str], *, azure: str = "", aws: str = "", gpuhunt: str = "") -> dict[str, PriceFeed]:
        """Return the feeds of today's prices by name.

        Args:
            azure, aws: other addresses than the clouds' own, "" for those; gpuhunt: file or URL of its catalogue.
        """
        from fleetctl.adapters.price_feeds.aws_price_list import AwsPriceList
        from fleetctl.adapters.price_feeds.azure_retail import PUBLIC, AzureRetail
        from fleetctl.adapters.price_feeds.gpuhunt import Gpuhunt

        today = self.clock.now().date().isoformat()
        made: dict[str, PriceFeed] = {
            "azure": AzureRetail(today, azure or PUBLIC),
            "aws": AwsPriceList(today, aws),
            "gpuhunt": Gpuhunt(today, gpuhunt),
        }
        return {n: made[n] for n in names}

    @cached_property
    def scans(self) -> ScanRecords:
        """Return the file of the last looks at all sources."""
        from fleetctl.adapters.scans import ScanFile

        return ScanFile(self.workspace / STATE / "inventory.db")

    def discovery(self, source: Connection, endpoints: tuple[str, ...]) -> PartedDiscovery:
        """Return a source of the inventory.

        Args:
            endpoints: of the fleet file's cells, for engines that are not named.
        """
        from fleetctl.wiring.sources import discovery_of

        return discovery_of(source, self.workspace, self.clock.now, endpoints)

    def ansible_inventory(self, hosts: Sequence[Host], fleet: Fleet, *, as_list: bool) -> str:
        """Return the Ansible inventory of these hosts, every string of theirs marked unsafe; as the answer to --list, or as YAML."""
        from fleetctl.adapters.ansible.inventory import inventory_list, inventory_yaml

        return inventory_list(hosts, fleet=fleet) if as_list else inventory_yaml(hosts, fleet=fleet)
