"""Composition root, inventory, assessment and planning. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.name_tables import ImportedNames
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
    def scans(self) -> ScanRecords:
        """Return the file of the last looks at all sources."""
        from fleetctl.adapters.scans import ScanFile

        return ScanFile(self.workspace / STATE / "inventory.db")

    def discovery(self, source: Connection, endpoints: tuple[str, ...]) -> PartedDiscovery:
        """Return a source of the inventory.

        Args:
            endpoints: of the fleet file's cells, for engines that are not named.
        """
        from fleetctl.formats.sources import SOURCES

        make = {
            "azure": self._azure,
            "aws": self._aws,
            "ansible": self._ansible_inventories,
            "engines": lambda s: self._engines(s, endpoints),
            "prometheus": self._prometheus,
            "table": self._tables,
            "kubernetes": self._cluster,
        }
        assert set(make) == set(SOURCES), "each kind of source has an adapter"  # noqa: S101
        return make[source.kind](source)

    def _azure(self, source: Connection) -> PartedDiscovery:
        from fleetctl.adapters.azure.client import PUBLIC, AzureAccess
        from fleetctl.adapters.azure.discovery import AzureDiscovery

        s = source.settings
        access = AzureAccess(
            subscriptions=tuple((s.get("subscriptions") or os.environ.get("AZURE_SUBSCRIPTION_ID", "")).split()),
            endpoint=s.get("endpoint", PUBLIC),
            ca_file=s.get("ca_file", ""),
            token=self._secret(source, "token"),
        )
        every = s.get("every_vm") == "true"
        return AzureDiscovery(source.name, access, self.clock.now, regions=tuple(s.get("regions", "").split()), every_vm=every)

    def _aws(self, source: Connection) -> PartedDiscovery:
        from fleetctl.adapters.aws.client import AwsAccess
        from fleetctl.adapters.aws.discovery import AwsDiscovery

        s = source.settings
        access = AwsAccess(profile=s.get("profile", ""), endpoint=s.get("endpoint", ""))
        every = s.get("every_vm") == "true"
        return AwsDiscovery(source.name, access, self.clock.now, regions=tuple(s.get("regions", "").split()), every_vm=every)

    def _ansible_inventories(self, source: Connection) -> PartedDiscovery:
        from fleetctl.adapters.ansible_inventory import AnsibleDiscovery

        return AnsibleDiscovery(source.name, self._paths(source.settings.get("inventories", "")), self.clock.now, os.environ)

    def _engines(self, source: Connection, endpoints: tuple[str, ...]) -> PartedDiscovery:
        from fleetctl.adapters.engines.discovery import EngineDiscovery

        urls = tuple(source.settings.get("urls", "").split()) or endpoints
        key = self._secret(source, "key")
        return EngineDiscovery(source.name, urls, self.clock.now, key=key, ca_file=source.settings.get("ca_file", ""))

    def _prometheus(self, source: Connection) -> PartedDiscovery:
        from fleetctl.adapters.prometheus.client import PrometheusApi
        from fleetctl.adapters.prometheus.discovery import PrometheusDiscovery

        s = source.settings
        api = PrometheusApi(s.get("url", ""), token=self._secret(source, "token"), ca_file=s.get("ca_file", ""))
        return PrometheusDiscovery(source.name, api, self.clock.now, window=s.get("window", "24h"))

    def _tables(self, source: Connection) -> PartedDiscovery:
        from fleetctl.adapters.files import TableDiscovery

        return TableDiscovery(source.name, self._paths(source.settings.get("files", "")), self.clock.now, shown=self._shown)

    def _cluster(self, source: Connection) -> PartedDiscovery:
        from fleetctl.adapters.kubernetes.client import ClusterAccess
        from fleetctl.adapters.kubernetes.discovery import KubernetesDiscovery

        s = source.settings
        access = ClusterAccess(kubeconfig=s.get("kubeconfig", ""), context=s.get("context", ""))
        return KubernetesDiscovery(source.name, access, self.clock.now)

    def ansible_inventory(self, hosts: Sequence[Host], fleet: Fleet, *, as_list: bool) -> str:
        """Return the Ansible inventory of these hosts, every string of theirs marked unsafe; as the answer to --list, or as YAML."""
        from fleetctl.adapters.ansible.inventory import inventory_list, inventory_yaml

        return inventory_list(hosts, fleet=fleet) if as_list else inventory_yaml(hosts, fleet=fleet)
