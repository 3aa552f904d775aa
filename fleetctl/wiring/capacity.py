"""Composition root, provision and configure. Never decides; imports an adapter when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from decimal import Decimal

    from fleetctl.adapters.timer.install import Every, Installed, TimerJob
    from fleetctl.domain.capacity import Candidate
    from fleetctl.domain.fleet import Connection
    from fleetctl.domain.holds import Said
    from fleetctl.domain.ids import CellId, PoolId
    from fleetctl.domain.people import Facts, Gap
    from fleetctl.domain.pool import PoolSpec
    from fleetctl.domain.provision import PriceFrom
    from fleetctl.formats.nodes_file import NodesFile
    from fleetctl.ports.capacity import CapacitySource, Configurator, Leftovers, Provisioner
    from fleetctl.usecases.capacity import CapacityPorts, Shown
    from fleetctl.usecases.configure_nodes import Nodes
    from fleetctl.usecases.oracle import Oracle
    from fleetctl.usecases.plan import PlanPorts
    from fleetctl.usecases.release import ReleasePorts

from fleetctl.wiring.base import STACKS, STATE, shipped
from fleetctl.wiring.see import See
from fleetctl.wiring.traffic import Traffic

SEES_MACHINES = frozenset({"azure", "aws", "kubernetes"})
"""Kinds of inventory sources that know for themselves which machines exist; lists that people keep do not."""


class Capacity(See, Traffic):
    """What makes machines, prepares them and gives them back."""

    def provisioner(self, spec: PoolSpec) -> Provisioner:
        """Return what makes a pool, by its stack."""
        from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
        from fleetctl.adapters.terraform.stacks import backend_from, cloud_variables, lab_variables, subscription_of
        from fleetctl.adapters.terraform.tool import find_tool

        settings = self.fleet.settings
        stack = self._stack(spec)
        is_lab = stack == "lab"
        if stack == "azure":
            subscription_of(settings)  # said before anything is asked
        if is_lab:
            variables = lab_variables(Path(settings["lab.hosts"]), sys.executable, network=settings.get("lab.network", ""))
        else:
            variables = cloud_variables(stack, settings)
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
        from fleetctl.wiring.clouds import leftovers_of

        regions = dict.fromkeys((spec.region, *(p.region for p in self.places(spec))))
        return leftovers_of(self._stack(spec), self.fleet.settings, tuple(regions))

    def is_gone(self, holder: str) -> bool:
        """Tell whether a lease's holder was a process of this machine that is no more."""
        from fleetctl.wiring.clouds import is_gone

        return is_gone(holder)

    def timer_job(self, every: str, limits: Sequence[str] = ()) -> TimerJob:
        """Return what a timer runs: this very program, in this workspace, with these limits."""
        from fleetctl.adapters.timer import TimerJob, owner_of

        argv = (sys.executable, "-m", "fleetctl.cli.main", "-C", str(self.workspace), "rebalance", "--apply", *limits)
        return TimerJob(
            name=f"fleetctl-rebalance-{self.fleet.name}",
            argv=argv,
            folder=self.workspace,
            every=cast("Every", every),
            path=os.environ.get("PATH", os.defpath),
            user=owner_of(self._private()),
        )

    def ticker_job(self) -> TimerJob:
        """Return what ticks without anybody logged in: each minute, where nobody ticks, this very program in this workspace."""
        from dataclasses import replace

        argv = (sys.executable, "-m", "fleetctl.cli.main", "-C", str(self.workspace), "migrate", "--tick")
        return replace(self.timer_job("minutely"), name=f"fleetctl-ticker-{self.fleet.name}", argv=argv)

    def guard_unit(self, every_s: float) -> str:
        """Return the systemd unit of a guard of this workspace.

        Raises:
            FleetctlError: timer.owner, timer.text; ConfigInvalid: config.env_secret.
        """
        from fleetctl.adapters.timer import guard_unit, owner_of
        from fleetctl.errors import FleetctlError

        try:
            fleet = self.fleet
        except FleetctlError:  # a guard needs none
            pass
        else:
            _refuse_env((*fleet.routers, *fleet.notify), "the guard")
        argv = (sys.executable, "-m", "fleetctl.cli.main", "-C", str(self.workspace), "guard", "--every", f"{every_s:g}")
        return guard_unit(argv, self.workspace, os.environ.get("PATH", os.defpath), owner_of(self._private()))

    def _private(self) -> Path:
        """Return the folder whose owner alone can use the workspace's keys; the workspace where it has none yet."""
        folder = self.workspace / STATE
        return folder if folder.is_dir() else self.workspace

    def install_timer(self, kind: str, job: TimerJob) -> Installed:
        """Write and enable a timer: systemd or cron. Raises ConfigInvalid (config.env_secret): the fleet has secrets it would not find."""
        from fleetctl.adapters.timer import install_cron, install_systemd

        fleet = self.fleet
        _refuse_env((*fleet.routers, *fleet.sources, *fleet.evidence, *fleet.notify), "the timer")
        return install_cron(job) if kind == "cron" else install_systemd(job)

    def remove_timer(self, kind: str, job: TimerJob) -> tuple[str, ...]:
        """Take a timer away; returns what was there, () for nothing."""
        from fleetctl.adapters.timer import remove_cron, remove_systemd

        return remove_cron(job) if kind == "cron" else remove_systemd(job)

    def capacity_source(self, stack: str) -> CapacitySource | None:
        """Return what reads capacity from a stack's cloud, None where it has none; one per stack, so that reads are shared."""
        from fleetctl.wiring.clouds import source_of

        if stack not in self._sources:
            self._sources[stack] = source_of(stack, self.fleet.settings, self.clock.now)
        return self._sources[stack]

    def pool_source(self, spec: PoolSpec) -> CapacitySource | None:
        """Return the same for one pool: only reserved places that it can use count."""
        return self._usable(self._stack(spec), (spec.pool,))

    def _usable(self, stack: str, pools: Sequence[PoolId]) -> CapacitySource | None:
        from fleetctl.adapters.terraform.stacks import reservations_of
        from fleetctl.wiring.clouds import UsableSource

        source = self.capacity_source(stack)
        named = {p: reservations_of(p, stack, self.fleet.settings) for p in pools}
        return None if source is None else UsableSource(source, named)

    def places(self, spec: PoolSpec) -> tuple[Candidate, ...]:
        """Return where a pool may be made, by the fleet file's settings; what was asked for first."""
        from fleetctl.adapters.terraform.stacks import places_from

        return places_from(spec, self.fleet.settings)

    @cached_property
    def oracle(self) -> Oracle:
        """Return what says where capacity is to be had."""
        from fleetctl.usecases.oracle import Oracle

        def source(sku: str, region: str) -> CapacitySource | None:
            pools = [p for p in self.fleet.pools if (p.sku, p.region) == (sku, region)]
            stack = pools[-1].provisioned_by if pools else "existing"
            return self._usable(stack, [p.id for p in pools if p.provisioned_by == stack])

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

    def role_variables(self) -> frozenset[str]:
        """Return the names of variables that the shipped roles and plays know."""
        from fleetctl.formats.role_variables import role_variables

        return role_variables(shipped("playbooks"))

    def deep_checks(self, profile: str) -> Mapping[str, int]:
        """Return the deep checks of a profile of the health gate by name, with the seconds that each may take."""
        from fleetctl.formats.role_variables import deep_checks

        return deep_checks(shipped("playbooks"), profile)

    def node_facts(self) -> tuple[Facts, ...]:
        """Return what nodes said of themselves when they were made; () where there is no store yet."""
        from fleetctl.usecases.configure_nodes import node_facts

        return node_facts(self.store) if self._store.exists() else ()

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

    def node_values(self, folder: Path, nodes: Nodes, longest_s: int) -> Callable[[Mapping[str, object]], Mapping[str, object]]:
        """Return what puts secrets and signed addresses into variables when a run begins.

        Args:
            folder: where relative names of secret files begin; longest_s: longest run, seconds.
        """
        from fleetctl.adapters.model_stores.signer import ModelSigner
        from fleetctl.adapters.secrets.files import FileSecrets
        from fleetctl.formats.model_files import secret_of
        from fleetctl.usecases.node_values import values_of

        secrets = FileSecrets(folder)
        return lambda found: values_of(nodes, found, secrets, ModelSigner(secrets, self.clock.now), secret_of, longest_s)

    def capacity_ports(self, run: Path, configurator: Configurator | None = None, shown: Shown | None = None) -> CapacityPorts:
        """Return all that provision and configure touch.

        Args:
            configurator: instead of the lab's; shown: called with every plan before it is applied.
        """
        from fleetctl.usecases.capacity import CapacityPorts
        from fleetctl.wiring.clouds import is_gone

        return CapacityPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            provisioner=self.provisioner,
            configurator=configurator or self.configurator(run),
            holder=self.holder,
            actor=self.actor,
            leftovers=self.leftovers,
            source=self.pool_source,
            places=self.places,
            keeps=lambda spec: self.fleet.settings.get(f"pool.{spec.pool}.partial", "keep") != "move",
            price=lambda spec: self.price_of(spec)[0],
            shown=shown or (lambda *_: None),
            is_gone=is_gone,
        )

    def price_of(self, spec: PoolSpec) -> tuple[Decimal | None, PriceFrom]:
        """Return what one machine of a pool costs where the spec puts it, USD per hour, and by which price.

        The fleet file's price is for the place that the fleet file names; elsewhere, and where it gives none, the list's is taken.
        """
        from fleetctl.domain.capacity import Candidate
        from fleetctl.wiring.clouds import list_price

        place = Candidate(sku=spec.sku, region=spec.region, priority=spec.priority)
        own = next((p for p in self.fleet.pools if p.id == spec.pool), None)
        if (
            own is not None
            and own.price_usd_per_hour is not None
            and (own.sku, own.region, own.priority)
            == (
                place.sku,
                place.region,
                place.priority,
            )
        ):
            return own.price_usd_per_hour, "contract"
        return list_price(place, self.catalog_of("list")), "list"

    def pool_price(self, pool: PoolId, *, more: int = 0) -> Decimal | None:
        """Return what a pool's machines cost, USD per hour: the fleet file's price, else the list's; None where neither is known.

        Args:
            more: machines besides those on record.
        """
        from fleetctl.domain.capacity import Candidate
        from fleetctl.usecases.capacity import PoolHosts
        from fleetctl.wiring.clouds import list_price

        p = self.fleet.pool(pool)
        made = self.store.get(PoolHosts, pool)
        each = p.price_usd_per_hour or list_price(Candidate(sku=p.sku, region=p.region, priority=p.priority), self.catalog_of("list"))
        return None if each is None else each * ((len(made.hosts) if made is not None else p.count) + more)

    def release_ports(self, run: Path) -> ReleasePorts:
        """Return all that a release touches."""
        from fleetctl.usecases.release import ReleasePorts, machines_only
        from fleetctl.usecases.scan import scan_sources

        def look() -> tuple[Facts | Gap, ...] | None:
            names = [c for c in self.fleet.sources if c.kind in SEES_MACHINES]
            if not names:
                return None
            scan = scan_sources([self.discovery(c, ()) for c in names], None, self.clock.now)
            return machines_only((*scan.facts(), *scan.gaps()))

        return ReleasePorts(
            capacity=self.capacity_ports(run),
            run=run,
            shown=self.shown_bp,
            answers=self._open_answers,
            look=look,
            unhold=self._unhold,
            proof=self.proof,
        )

    def _open_answers(self, c: CellId, pool: PoolId) -> int | None:
        """Return how many answers a cell's router still has open on a pool; None where nobody can tell."""
        from fleetctl.domain.split import Drained
        from fleetctl.errors import FleetctlError

        try:
            router = self.router_of(c)
            found = router.drain(c, pool, router.read(c).token)
        except FleetctlError:
            return None
        return found.open_streams if isinstance(found, Drained) else None

    def _unhold(self, pool: PoolId) -> tuple[tuple[CellId, Said], ...]:
        """Give a pool's held minimum back; asks nobody where none is held."""
        from fleetctl.domain.holds import Pin

        return self.holds.release(pool) if any(p.is_open and p.pool == pool for p in self.store.all(Pin)) else ()

    def plan_ports(self, shown: Callable[[CellId], int] | None = None) -> PlanPorts:
        """Return all that planning touches; `shown`: what a cell's router sends to its target, basis points."""
        from fleetctl.usecases.plan import PlanPorts

        return PlanPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            capacity=self.oracle,
            actor=self.actor,
            shown=shown,
            catalog=self.catalog,
            proof=self.proof,
            budget=self.budget,
        )


def _refuse_env(connections: Iterable[Connection], what: str) -> None:
    """Refuse to leave to systemd or cron what needs a variable of this terminal: it would judge, raise, prove and page nothing.

    Raises:
        ConfigInvalid: config.env_secret.
    """
    from fleetctl.errors import ConfigInvalid

    found = [f"{c.name}: {name} is the variable {ref.name}" for c in connections for name, ref in c.secrets.items() if ref.kind == "env"]
    if found:
        text = f"{what} would run without the variables of this terminal, and {len(found)} secrets of the fleet file are such."
        hint = "Put each into a file of yours alone: {kind: file, name: PATH}"
        raise ConfigInvalid("config.env_secret", text, hint=hint, details=tuple(found))
