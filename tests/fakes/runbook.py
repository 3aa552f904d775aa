"""A cell with runbooks, in memory: what is known of it, and commands that print what their steps expect."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleetctl.adapters.runbooks import JournalFile
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.runbook import Bound, LiveName, LiveValue, Step
from fleetctl.domain.split import Readiness, Split
from fleetctl.errors import FleetctlError
from fleetctl.formats.runbook_file import load_runbook
from fleetctl.ports.runbook import Ended
from fleetctl.usecases.home import HomePorts
from fleetctl.usecases.runbook import Answer, LookPorts, RunPorts, bind, find_cell, look
from tests.fakes.clock import START, FakeClock
from tests.fakes.home import MemoryWaysHome
from tests.fakes.router import EPOCH, FakeRouter
from tests.fakes.store import MemoryStore

CELL = CellId("chat-east")
SOURCE = PoolId("h100")
ME = Actor(kind="person", name="ada")


def way(cell: str = CELL, region: str = "eastus2") -> WayHome:
    return WayHome(
        fleet="f",
        cell=CellId(cell),
        workload=WorkloadId("chat"),
        region=region,
        tenant="",
        klass="online",
        router=Connection(kind="haproxy", name="edge"),
        source=SOURCE,
        cap_bp=9_500,
        paper=(),
        made_at=START,
    )


class Prober:
    ready_now = 2

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=self.ready_now, total=2, age_s=0.0)


class World:
    """One cell at 50 % behind a router, in memory."""

    cell = CELL

    def __init__(self, *ways: WayHome, weight_bp: int = 5_000) -> None:
        self.clock, self.prober, self.ways = FakeClock(), Prober(), MemoryWaysHome()
        for w in ways or (way(),):
            self.ways.write(w)
        self.router = FakeRouter(dict.fromkeys(self.ways.cells(), SOURCE))
        self.weight(weight_bp)
        self.store = MemoryStore(self.clock.now)
        self.at: str | FleetctlError = "canary at 50 %, PASS"
        home = HomePorts(
            router=lambda _: self.router, prober=lambda _: self.prober, ways=self.ways, clock=self.clock, store=lambda: self.store
        )
        self.look = LookPorts(home=home, migration=self._migration)

    def weight(self, bp: int) -> None:
        self.router.target.splits[CELL] = Split(cell=CELL, target_bp=bp, cap_bp=9_500, token=Token(1), lease_until=EPOCH)

    def _migration(self, _: CellId) -> str:
        if isinstance(self.at, FleetctlError):
            raise self.at
        return self.at

    def bound(self, name: str = "full-fallback") -> Bound:
        found = find_cell(CELL, self.look)
        return bind(load_runbook(name), CELL, found, look(CELL, found, self.look), self.look)


EXTRA = {
    "see": f"{CELL}  rollout.start",
    "paper": f"{CELL}\n",
    "answers": "router        edge answers\n",
    "source-ready": "source        2 of 2 replicas\n",
}
"""What steps of other runbooks print; `look` of those is a doctor."""


class Answers:
    """Commands that print what their step expects, unless told otherwise."""

    def __init__(
        self,
        bound: Bound,
        *,
        wrong: str = "",
        dies_at: str = "",
        live: Callable[[], Mapping[LiveName, LiveValue]] = dict,
        home: Callable[[], None] = lambda: None,
    ) -> None:
        self.live, self.home = live, home
        self.steps = [s for s in bound.runbook.all_steps if s.command]
        self.wrong, self.dies_at = wrong, dies_at
        self.ran: list[str] = []
        self.passed: set[str] = set()

    def run(self, words: Sequence[str], limit_s: float) -> Ended:
        if tuple(words[-2:]) == ("-o", "json"):  # a person's look in between, no step
            rows = [{"name": v.name, "is_good": v.is_good} for v in self.live().values()]
            return Ended(exit_code=0, output=json.dumps({"live": rows}), seconds=0.5)
        if words[0] == "fallback":
            self.home()
        alike = [s for s in self.steps if s.command[1:] == tuple(words)]
        step = next((s for s in alike if s.id not in self.passed), alike[-1])
        self.ran.append(step.id)
        self.passed |= {step.id} - {self.wrong}
        if step.id == self.dies_at:
            raise KeyboardInterrupt
        good = {
            "look": f"{CELL}\n" if "--dry-run" in words else "0 missing, 1 to look at\n",
            "go-home": f"cell/{CELL} home: 50 % -> 0 % in 9 ms\n1 of 1 home; slowest\n",
            "reconcile": "Nothing to reconcile.",
            "at-zero": "weight        0 % on the target\nsource        2 of 2 replicas\n",
            "nothing-moves": "migration     fell back in canary (fallback)\n",
        }
        output = good.get(step.id) or EXTRA.get(step.id, "")
        return Ended(exit_code=1 if step.id == self.wrong else 0, output=output, seconds=0.5)


def ports(world: World, bound: Bound, commands: Answers, folder: Path, asked: list[tuple[str, str]] | None = None) -> RunPorts:
    def ask(step: Step, note: str) -> Answer:
        if asked is not None:
            asked.append((step.id, note))
        return "skip" if step.choice else "run"

    return RunPorts(
        commands=commands,
        journal=JournalFile(folder, CELL, bound.runbook.id),
        clock=world.clock,
        actor=ME,
        ask=ask,
        tell=lambda *_: None,
        note=lambda e: world.store.append((e,)),
    )
