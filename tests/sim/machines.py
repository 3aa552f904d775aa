"""Simulator: how the target's machines come to be, while cells wait for them: Terraform and Ansible behind their ports, which fail.

The real saga and the real run over nodes, with a cloud, a provisioner and a configurator in memory. They refuse, make half, hang while
everybody else goes on, and are killed at each step; a person runs them again. Cells begin as soon as their target answers, and not before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from fleetctl.domain.capacity import Candidate, ProvisionIntent
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import HostId, Token
from fleetctl.domain.matrix import Wanted
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import HostResult, Progress, Provisioned, ProvisionFailure, ProvisionPlan
from fleetctl.errors import FleetctlError
from fleetctl.usecases.capacity import CapacityPorts
from fleetctl.usecases.configure_nodes import PLAYS, Nodes, configure_nodes
from fleetctl.usecases.provision import provision
from tests.cases import provision_refusals as corpus
from tests.fakes.cloud import FakeCloud, RefusingProvisioner
from tests.fakes.configurator import FakeConfigurator, State
from tests.sim.world import TARGET, Killed, World

HOSTS = 4
MOST_RUNS = 20
"""Runs after which a person would have called for help: by then every fault has ended long ago."""
TEXT = {r.code: f"{r.code}: {r.message}" for r in (*corpus.AZURE, *corpus.AWS)}
REFUSALS = ("AllocationFailed", "ZonalAllocationFailed", "TooManyRequests", "RequestLimitExceeded", "InsufficientInstanceCapacity")
STEPS = ("intent", "planned", "applied", "done", "compensating", "compensated")
PLACES = tuple(Candidate(sku="lab-mi300x", region="lab", zone=zone) for zone in ("1", "2", "3"))
SPEC = PoolSpec(pool=TARGET, vendor="amd", sku="lab-mi300x", region="lab", count=HOSTS, stack="lab", zone="1")


class Hanging(RefusingProvisioner):
    """Terraform: refuses by script, makes half, and takes its time; `during` is lived through in the middle of an apply."""

    def __init__(self, cloud: FakeCloud, refusals: list[str], during: Callable[[], None]) -> None:
        super().__init__(cloud, refusals)
        self._during = during

    def apply(self, p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        """Do it, late."""
        self._during()
        return super().apply(p, token, on)


class Plays(FakeConfigurator):
    """Ansible: hosts fail or do not answer for a while, and a run takes its time."""

    during: Callable[[], None] = staticmethod(lambda: None)

    def run(
        self, play: str, hosts: Sequence[Host], variables: Mapping[str, object], token: Token, on: Callable[[Progress], None]
    ) -> tuple[HostResult, ...]:
        """Do it, late."""
        self.during()
        return super().run(play, hosts, variables, token, on)


class Machines:
    """The target pool of a world: nothing at first.

    Args:
        seed: draws its faults, apart from those of the world.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, Random(f"machines {seed}")
        self.cloud = FakeCloud()
        refusals = [TEXT[code] for code in self.random.choices(REFUSALS, k=self.random.choice((0, 0, 1, 2, 3)))]
        self.terraform = Hanging(self.cloud, refusals, self._takes_its_time)
        self.ansible = Plays(plays=frozenset(PLAYS))
        self.ansible.during = self._takes_its_time
        if self.random.random() < 0.4:
            self.terraform.fail = {HostId(f"{TARGET}-{self.random.randint(1, HOSTS)}")}
        self.stop_at = self.random.choice((*STEPS, "", "", ""))
        self.kills, self.runs, self.said = 2, 0, list[str]()
        self._folder = tempfile.TemporaryDirectory()
        self._ready(0)

    def prepare(self) -> None:
        """Run provision and configure until they are through, as a person does who comes back after each failure."""
        with self._folder:
            self._until_through(self._provision)
            self.terraform.fail.clear()
            self._until_through(self._configure)

    def _until_through(self, once: Callable[[], None]) -> None:
        for _ in range(MOST_RUNS):
            self.runs += 1
            try:
                once()
                return
            except FleetctlError as e:
                self.said.append(e.code)
            except Killed:
                self.said.append("killed")
            full = self.said[-1].startswith("capacity.")  # what was full is not tried again for hours
            self.world.run_until(self.world.t + (6 * 3_600 if full else self.random.uniform(5, 120)))
            self.world.store.down = False
            self.terraform.fail.clear()
            self.ansible.states.clear()
        raise AssertionError(f"not through after {MOST_RUNS} runs: {self.said}")

    def _provision(self) -> None:
        plan: Plan = object.__new__(Plan)
        object.__setattr__(plan, "pools", (SPEC,))
        fleet: Fleet = object.__new__(Fleet)
        object.__setattr__(fleet, "cells", ())
        object.__setattr__(fleet, "lineage", "f1")
        provision(plan, fleet, Path(self._folder.name) / str(self.runs), self._ports(), lambda _: None)

    def _configure(self) -> None:
        if self.random.random() < 0.4:
            state: State = self.random.choice(("failed", "unreachable"))
            self.ansible.states[f"{TARGET}-{self.random.randint(1, HOSTS)}"] = state
        hosts = self.terraform.outputs(TARGET)
        wanted = Wanted(release="debian-13-rocm-6.1.2", layer="hip", gpu_target="gfx942", container=False)
        nodes = Nodes(pool=TARGET, hosts=hosts, wanted=wanted, roles={}, by_host={}, pins={}, keys={})
        variables = {"by_host": {h.id: {"engine": "vllm"} for h in hosts}}
        try:
            configure_nodes(nodes, "site", variables, self._ports(), lambda _: None, resume=True)
        finally:
            self._ready(sum(bool(self.ansible.manifest(h.id)) for h in hosts))

    def _ports(self) -> CapacityPorts:
        holder = f"ada@here:{self.runs}"
        return CapacityPorts(
            store=self.world.store,
            records=self.world.store,
            clock=self.world.clock,
            provisioner=lambda _: self.terraform,
            configurator=self.ansible,
            holder=holder,
            actor=Actor(kind="person", name="ada"),
            leftovers=lambda _: self.cloud,
            places=lambda _: PLACES,
            reached=self._reached,
            is_gone=lambda h: h != holder,
        )

    def _reached(self, step: str) -> None:
        if step == self.stop_at:
            self.stop_at = self.random.choice(("", "", *STEPS))
            raise Killed

    def _takes_its_time(self) -> None:
        """Hang for up to ten minutes, in which cells are looked at and the store may be away; perhaps be killed in it."""
        store, is_away = self.world.store, self.random.random() < 0.2
        self.world.run_until(self.world.t + self.random.uniform(1, 300))
        store.down = is_away
        self.world.stir()
        self.world.run_until(self.world.t + self.random.uniform(1, 300))
        store.down = is_away and self.random.random() < 0.5
        if self.kills and self.random.random() < 0.2:
            self.kills -= 1
            store.down = False
            raise Killed

    def _ready(self, hosts: int) -> None:
        for c in self.world.cells:
            self.world.set_ready(TARGET, c, hosts / HOSTS)

    def wrong(self) -> list[str]:
        """Return what is not as it was asked for, once everything is through."""
        found = []
        hosts = [HostId(f"{TARGET}-{n + 1}") for n in range(HOSTS)]
        if sorted(self.terraform.ids(TARGET)) != sorted(hosts):
            found.append(f"the cloud has {sorted(self.terraform.ids(TARGET))}")
        if self.terraform.drift(TARGET):
            found.append(f"a plan would change {[d.path for d in self.terraform.drift(TARGET)]}")
        if self.cloud.things:
            found.append(f"left behind: {sorted(self.cloud.things)}")
        intent = self.world.store.get(ProvisionIntent, TARGET)
        if intent is None or intent.step != "done":
            found.append(f"on record: {intent}")
        bare = [h for h in hosts if not self.ansible.manifest(h)]
        if bare:
            found.append(f"never configured: {bare}")
        return found
