"""Composition root: the only module that knows both ports and adapters. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetctl.adapters.haproxy.router import Backends
    from fleetctl.adapters.home.files import WayHomeFiles
    from fleetctl.adapters.name_tables import ImportedNames
    from fleetctl.adapters.store.sqlite import SqliteStore
    from fleetctl.adapters.store.status import StatusRow
    from fleetctl.domain.capacity import Candidate
    from fleetctl.domain.fleet import Connection, Fleet
    from fleetctl.domain.home import WayHome
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.domain.people import Actor
    from fleetctl.domain.plan import Plan
    from fleetctl.domain.pool import Host, PoolSpec
    from fleetctl.formats.nodes_file import NodesFile
    from fleetctl.ports.capacity import CapacitySource, Configurator, Leftovers, PartedDiscovery, Provisioner, ScanRecords
    from fleetctl.ports.portability import CopyWriter
    from fleetctl.ports.state import Clock
    from fleetctl.ports.traffic import EvidenceSource, Prober, Router, Shadow
    from fleetctl.usecases.assess import AssessPorts, Price
    from fleetctl.usecases.capacity import CapacityPorts, Shown
    from fleetctl.usecases.home import HomePorts
    from fleetctl.usecases.oracle import Oracle
    from fleetctl.usecases.plan import PlanPorts
    from fleetctl.usecases.tick import TickPorts, TickSettings

STATE = ".fleetctl"
STACKS = ("lab", "azure", "aws")


def shipped(name: str) -> Path:
    """Return the folder `playbooks` or `terraform`: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    inside = package / "_shipped" / name
    return inside if inside.is_dir() else package.parent / name


class Wiring:
    """Adapters of one workspace, made when asked for and kept.

    Args:
        workspace: the user's folder; fleet_file: finds the fleet file, or raises ConfigInvalid.
        store: path of the store; actor: who acts.
    """

    def __init__(self, workspace: Path, fleet_file: Callable[[], Path], *, store: Path, actor: str) -> None:
        self.workspace = workspace
        self._fleet_file = fleet_file
        self._store = store
        self._actor = actor
        self._routers: dict[str, Router] = {}
        self._evidence: dict[str, EvidenceSource] = {}
        self._sources: dict[str, CapacitySource | None] = {}

    @property
    def state_folder(self) -> Path:
        """Return the workspace's private folder, made with mode 0700."""
        folder = self.workspace / STATE
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @cached_property
    def store(self) -> SqliteStore:
        """Return the store of record, made where nothing was ever planned. Raises StoreUnavailable, ConfigInvalid."""
        from fleetctl.adapters.store.sqlite import SqliteStore

        self._require_store()
        if not self._store.exists():
            self._fleet_file()  # no store is begun where there is no fleet
        try:
            self._store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            from fleetctl.errors import StoreUnavailable

            raise StoreUnavailable(
                "store.unreachable", f"{self._store.parent} cannot be made: {e.strerror}.", hint="Run: fleetctl doctor"
            ) from e
        return SqliteStore(self._store)

    def _require_store(self) -> None:
        """Refuse to begin an empty store where plans were made: it would hide the loss, and rollouts that still have customers.

        Raises:
            StoreUnavailable: store.gone.
        """
        if self._store.exists() or not any((self.workspace / STATE / "home").glob("*.json")):
            return
        from fleetctl.errors import StoreUnavailable

        raise StoreUnavailable(
            "store.gone",
            f"the store {self._store} is not there, though plans were made here.",
            hint=f"Put it back; or begin anew once all is home: fleetctl fallback --all, then rm -r {STATE}/home",
        )

    @cached_property
    def clock(self) -> Clock:
        """Return the system's clock."""
        from fleetctl.adapters.clock.system import SystemClock

        return SystemClock()

    @cached_property
    def actor(self) -> Actor:
        """Return the person at this terminal."""
        from fleetctl.domain.people import Actor

        return Actor(kind="person", name=self._actor, via="cli")

    @property
    def holder(self) -> str:
        """Return the name under which this process takes leases."""
        from fleetctl.ports.state import holder_name

        return holder_name(self.actor, os.getpid(), socket.gethostname())

    @cached_property
    def fleet(self) -> Fleet:
        """Read the fleet file and give it its serial: one more whenever its content differs from the last one recorded.

        Raises:
            ConfigInvalid: config.*, with every mistake of the file.
        """
        from fleetctl.domain.canonical import digest
        from fleetctl.domain.fleet import Fleet
        from fleetctl.formats.fleet_file import read_fleet

        shown = self._fleet_file()
        name = str(shown.relative_to(self.workspace)) if shown.is_relative_to(self.workspace) else str(shown)
        read = read_fleet(shown, serial=1, shown_as=name)
        last = self.store.newest(Fleet)
        if last is not None and last.lineage == read.lineage:
            same = replace(read, serial=last.serial)
            if digest(same) == digest(last):
                return last
            read = replace(read, serial=last.serial + 1)
        self.store.put(f"{read.lineage}-{read.serial}", read)
        return read

    def status_rows(self) -> tuple[StatusRow, ...]:
        """Return one light row per cell that moves or moved; () where there is no store yet. Raises StoreUnavailable (store.gone)."""
        self._require_store()
        from fleetctl.adapters.store.status import status_rows

        return status_rows(self._store) if self._store.exists() else ()

    def plan_ports(self) -> PlanPorts:
        """Return all that planning touches."""
        from fleetctl.usecases.plan import PlanPorts

        return PlanPorts(store=self.store, records=self.store, clock=self.clock, capacity=self.oracle, actor=self.actor)

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

    def router_of(self, c: CellId) -> Router:
        """Return the router of a cell."""
        return self._router(self._connection_of(c))

    def _connection_of(self, c: CellId) -> Connection:
        """Return the router's connection of a cell.

        Raises:
            ConfigInvalid: config.cell_gone, where the fleet file has lost a cell that still moves, or its router.
        """
        try:
            return self.fleet.router(self.fleet.cell(c).router.name)
        except KeyError:
            from fleetctl.errors import ConfigInvalid

            text = f"{c} is moving, and the fleet file no longer has it or its router."
            raise ConfigInvalid("config.cell_gone", text, hint=f"Put it back; until then only this works: fleetctl fallback {c}") from None

    def _router(self, connection: Connection) -> Router:
        if connection.name not in self._routers:
            self._routers[connection.name] = self._make_router(connection, {c.id: c.source for c in self.fleet.cells})
        return self._routers[connection.name]

    def _make_router(self, connection: Connection, sources: Mapping[CellId, PoolId]) -> Router:
        from fleetctl.errors import ConfigInvalid

        if connection.kind != "haproxy":
            raise ConfigInvalid("config.router_kind", f"router {connection.name} is of kind {connection.kind!r}; known is haproxy.")
        from fleetctl.adapters.haproxy.router import HaproxyRouter

        return HaproxyRouter(connection, sources=sources, backends=self._backends())

    def _backends(self) -> dict[CellId, Backends]:
        from fleetctl.adapters.haproxy.router import Backends

        named = (c for c in self.fleet.cells if c.router.baseline_backend or c.router.canary_backend)
        return {
            c.id: Backends(baseline=c.router.baseline_backend or f"{c.id}_baseline", canary=c.router.canary_backend or f"{c.id}_canary")
            for c in named
        }

    def _pin_key(self, connection: Connection) -> str:
        from fleetctl.adapters.secrets.files import FileSecrets
        from fleetctl.errors import CredentialsMissing

        ref = connection.secrets.get("pin_key")
        if ref is None:
            raise CredentialsMissing("credentials.missing", f"router {connection.name} names no pin_key.", hint="Add it to the fleet file")
        return FileSecrets().resolve(ref)

    def prober_of(self, c: CellId) -> Prober:
        """Return what proves a cell's replicas by real completions."""
        from fleetctl.adapters.haproxy.prober import HaproxyProber

        connection = self._connection_of(c)
        return HaproxyProber(
            connection,
            pin_key=lambda: self._pin_key(connection),
            sources={x.id: x.source for x in self.fleet.cells},
            models={x.id: self.fleet.workload(x.workload).model.name for x in self.fleet.cells},
            backends=self._backends(),
        )

    def evidence_of(self, c: CellId) -> EvidenceSource:
        """Return the evidence source of a cell; one per router."""
        from fleetctl.adapters.haproxy.evidence import HaproxyEvidence

        connection = self._connection_of(c)
        if connection.name not in self._evidence:
            workloads = {x.id: self.fleet.workload(x.workload) for x in self.fleet.cells if x.router.name == connection.name}
            self._evidence[connection.name] = HaproxyEvidence(
                Path(connection.settings["log_folder"]),
                now=self.clock.now,
                streaming=frozenset(c for c, w in workloads.items() if w.traffic.streaming),
                slo_latency_ms={c: w.slo.latency_ms for c, w in workloads.items() if w.slo.latency_ms is not None},
            )
        return self._evidence[connection.name]

    def shadow_of(self, c: CellId) -> Shadow:
        """Return the shadow of a cell."""
        from fleetctl.adapters.haproxy.router import HaproxyRouter
        from fleetctl.adapters.shadow.files import ShadowFiles

        connection = self._connection_of(c)
        router = self.router_of(c)

        def set_rate(cell: CellId, milli_per_s: int) -> None:
            if isinstance(router, HaproxyRouter):
                router.set_shadow(cell, milli_per_s / 1000)

        return ShadowFiles(Path(connection.settings["shadow_folder"]), set_rate=set_rate)

    def tick_ports(self) -> TickPorts:
        """Return all that a tick touches."""
        from fleetctl.adapters.notify.log import LogNotifier
        from fleetctl.adapters.nulls import NullHolds
        from fleetctl.usecases.tick import TickPorts

        return TickPorts(
            store=self.store,
            trail=self.store,
            clock=self.clock,
            notifier=LogNotifier(),
            holds=NullHolds(),
            router=self.router_of,
            evidence=self.evidence_of,
            shadow=self.shadow_of,
            prober=self.prober_of,
        )

    def tick_settings(self) -> TickSettings:
        """Return what a tick needs to know of this process and the policy."""
        from fleetctl.usecases.tick import TickSettings

        minimum = {p.id: p.count for p in self.fleet.pools}
        return TickSettings(holder=self.holder, freeze=self.fleet.policy.freeze, minimum=minimum)

    @cached_property
    def ways_home(self) -> WayHomeFiles:
        """Return the local way-home files; needs no store and no fleet file."""
        from fleetctl.adapters.home.files import WayHomeFiles, make_key

        key = self.state_folder / "key"
        make_key(key)
        return WayHomeFiles(self.state_folder / "home", key)

    def save_ways_home(self, plan: Plan) -> None:
        """Write the way home of every cell that the plan moves."""
        from fleetctl.adapters.haproxy.router import paper_commands
        from fleetctl.domain.home import WayHome

        for o in plan.outcomes:
            if o.kind != "move":
                continue
            cell, w = self.fleet.cell(o.cell), self.fleet.workload(o.workload)
            connection = self.fleet.router(cell.router.name)
            self.ways_home.write(
                WayHome(
                    fleet=self.fleet.name,
                    cell=cell.id,
                    workload=w.id,
                    region=cell.region,
                    tenant=w.tenant,
                    klass=w.klass,
                    router=connection,
                    source=cell.source,
                    cap_bp=self.fleet.policy.cap_bp,
                    paper=paper_commands(connection, cell.id),
                    made_at=self.clock.now(),
                    baseline_backend=cell.router.baseline_backend,
                    canary_backend=cell.router.canary_backend,
                )
            )

    def home_ports(self) -> HomePorts:
        """Return all that a return home touches; reads neither the store nor the fleet file."""
        from fleetctl.adapters.haproxy.prober import HaproxyProber
        from fleetctl.adapters.haproxy.router import Backends, HaproxyRouter
        from fleetctl.usecases.home import HomePorts

        def backends(way: WayHome) -> dict[CellId, Backends]:
            usual = Backends(baseline=f"{way.cell}_baseline", canary=f"{way.cell}_canary")
            return {way.cell: Backends(baseline=way.baseline_backend or usual.baseline, canary=way.canary_backend or usual.canary)}

        def router(way: WayHome) -> Router:
            return HaproxyRouter(way.router, sources={way.cell: way.source}, backends=backends(way))

        def prober(way: WayHome) -> Prober:
            sources = {way.cell: way.source}
            return HaproxyProber(way.router, pin_key=lambda: self._pin_key(way.router), sources=sources, backends=backends(way))

        return HomePorts(router=router, prober=prober, ways=self.ways_home, clock=self.clock, store=lambda: self.store)

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

    def _secret(self, source: Connection, name: str) -> Callable[[], str] | None:
        from fleetctl.adapters.secrets.files import FileSecrets

        ref = source.secrets.get(name)
        return None if ref is None else lambda: FileSecrets(self.workspace).resolve(ref)

    def _paths(self, text: str) -> tuple[Path, ...]:
        return tuple(self.workspace / os.path.expanduser(word) for word in text.split())

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self.workspace)) if path.is_relative_to(self.workspace) else str(path)

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

    def run_folder(self, name: str) -> Path:
        """Make and return a new private run folder."""
        folder = self.state_folder / "runs" / f"{self.clock.now():%Y%m%dT%H%M%S}-{name}-{os.getpid()}"
        folder.mkdir(mode=0o700, parents=True)
        return folder

    def provisioner(self, spec: PoolSpec) -> Provisioner:
        """Return what makes a pool, by its stack."""
        from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
        from fleetctl.adapters.terraform.stacks import backend_from, cloud_variables, lab_variables
        from fleetctl.adapters.terraform.tool import find_tool

        settings = self.fleet.settings
        stack = self._stack(spec)
        is_lab = stack == "lab"
        variables = lab_variables(Path(settings["lab.hosts"]), sys.executable) if is_lab else cloud_variables(stack, settings)
        folder = shipped("terraform") / "stacks" / stack
        backend = backend_from(settings, self.fleet.name)
        return TerraformProvisioner(folder, self.state_folder / "terraform", stack, variables, find_tool(), backend=backend)

    def _stack(self, spec: PoolSpec) -> str:
        from fleetctl.errors import ConfigInvalid

        stack = spec.stack or self.fleet.pool(spec.pool).provisioned_by
        if stack not in STACKS:
            known = ", ".join(STACKS)
            raise ConfigInvalid(
                "config.stack", f"pool {spec.pool} is provisioned by {stack!r}; the stacks are {known}.", hint="Change the fleet file"
            )
        return stack

    def leftovers(self, spec: PoolSpec) -> Leftovers:
        """Return what finds and removes what a try left in the pool's cloud."""
        from fleetctl.wiring_clouds import leftovers_of

        return leftovers_of(self._stack(spec), self.fleet.settings, spec.region)

    def capacity_source(self, stack: str) -> CapacitySource | None:
        """Return what reads capacity from a stack's cloud, None where it has none; one per stack, so that reads are shared."""
        from fleetctl.wiring_clouds import source_of

        if stack not in self._sources:
            self._sources[stack] = source_of(stack, self.fleet.settings, self.clock.now)
        return self._sources[stack]

    def places(self, spec: PoolSpec) -> tuple[Candidate, ...]:
        """Return where a pool may be made, by the fleet file's settings; what was asked for first."""
        from fleetctl.adapters.terraform.stacks import places_from

        return places_from(spec, self.fleet.settings)

    @cached_property
    def oracle(self) -> Oracle:
        """Return what says where capacity is to be had."""
        from fleetctl.usecases.oracle import Oracle

        stacks = {(p.sku, p.region): p.provisioned_by for p in self.fleet.pools}

        def source(sku: str, region: str) -> CapacitySource | None:
            return self.capacity_source(stacks.get((sku, region), "existing"))

        return Oracle(source=source, records=self.store, now=self.clock.now)

    def configurator(self, run: Path, *, check: bool = False, diff: bool = False, tags: Sequence[str] = ()) -> Configurator:
        """Return what prepares hosts; see `AnsibleConfigurator` for check, diff and tags."""
        from fleetctl.adapters.ansible.configurator import AnsibleConfigurator

        return AnsibleConfigurator(shipped("playbooks"), run, python=sys.executable, check=check, diff=diff, tags=tags)

    def playbooks_digest(self) -> str:
        """Return the digest of the playbooks that are shipped; nodes carry it in their manifest."""
        import hashlib

        whole = hashlib.sha256()
        root = shipped("playbooks")
        for path in sorted(p for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts and ".ansible" not in p.parts):
            whole.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return whole.hexdigest()[:16]

    def node_configurator(
        self, run: Path, nodes: NodesFile, *, check: bool = False, diff: bool = False, tags: Sequence[str] = (), timeout_s: float = 3600.0
    ) -> Configurator:
        """Return what prepares the hosts of a nodes file, in the group of their vendor."""
        from fleetctl.adapters.ansible.configurator import AnsibleConfigurator
        from fleetctl.adapters.ansible.settings import SshFiles

        return AnsibleConfigurator(
            shipped("playbooks"),
            run,
            python=sys.executable,
            check=check,
            diff=diff,
            tags=tags,
            timeout_s=timeout_s,
            forks=min(50, max(5, len(nodes.hosts))),
            vendors={nodes.pool: nodes.vendor},
            ssh=SshFiles(known_hosts=nodes.known_hosts, identity=nodes.identity),
        )

    def capacity_ports(self, run: Path, configurator: Configurator | None = None, shown: Shown | None = None) -> CapacityPorts:
        """Return all that provision and configure touch.

        Args:
            configurator: instead of the lab's; shown: called with every plan before it is applied.
        """
        from fleetctl.usecases.capacity import CapacityPorts
        from fleetctl.wiring_clouds import is_gone, list_price, stop_here

        return CapacityPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            provisioner=self.provisioner,
            configurator=configurator or self.configurator(run),
            holder=self.holder,
            actor=self.actor,
            leftovers=self.leftovers,
            source=lambda spec: self.capacity_source(self._stack(spec)),
            places=self.places,
            price=list_price,
            shown=shown or (lambda *_: None),
            reached=stop_here,
            is_gone=is_gone,
        )
