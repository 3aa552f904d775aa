"""Composition root, inventory, assessment and planning. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.name_tables import ImportedNames
    from fleetctl.domain.catalog import Catalog
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.pool import Host
    from fleetctl.ports.capacity import PartedDiscovery, ScanRecords
    from fleetctl.ports.portability import CopyWriter
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
        from fleetctl.catalog import load_catalog
        from fleetctl.planning.cost import share_of

        catalog = load_catalog()
        return lambda workload, pool: share_of(workload, pool, catalog)

    @cached_property
    def catalog(self) -> Catalog:
        """Return the catalogue with this workspace's own rows before the shipped ones."""
        from fleetctl.catalog import load_catalog

        return load_catalog()

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
