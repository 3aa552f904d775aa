"""End-to-end tests: a whole lab driven by the program as a user types it, each command a child process.

One lab serves all tests of a run (`whole_lab` in tests/conftest.py): up, plan, provision and configure happen once, and `fresh` brings it
back to everything home, faults off, HAProxy up, and the policy that a test asks for. Without the real LLM; with load on both big cells.
FLEETCTL_TEST_LAB=DIR keeps that lab up in DIR for the next run (for people who write these tests).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.cli.app import App
from fleetctl.domain.event import Event
from fleetctl.domain.ids import CellId
from fleetctl.domain.plan import Plan
from fleetctl.domain.rollout import Rollout
from fleetctl.formats.fleet_file import read_fleet
from fleetctl.lab import parts, service
from fleetctl.lab.fault_control import lab_clear
from fleetctl.lab.lifecycle import FLEET_FILE
from fleetctl.lab.overview import client_errors, load_stats
from fleetctl.lab.record import LabRecord, need_record, read_record
from fleetctl.ports.traffic import Router
from fleetctl.usecases.migrate import Driver
from fleetctl.wiring.routers import make_router
from tests.lab.lab_tools import until

ROOT = Path(__file__).resolve().parents[2]
CHAT, SUMMARY, STREAM = "chat-lab", "summary-lab", "stream-lab"
KEPT = os.environ.get("FLEETCTL_TEST_LAB", "")
WIDE = "guardrails: {errors: {margin: 10 points}, latency: {margin: 100%}}"
SHIPPED = "guardrails: {errors: {margin: 2 points}, latency: {margin: 25%}}"

POLICY = """policy:
  approvals: 0
  warm_up: {warm_up}
  weight_lease: {lease}
  lost_evidence_home: {lost}
  step_deadline: {deadline}
  order: [batch, online, realtime]
  checks: {checks}
  steps:
{steps}

settings:"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of one test.

    Args:
        steps: phase, weight in percent and bake in seconds of each weighted step; margins: of them all.
        shadow: compare answers of chat-lab before; checks: of both arms, that every workload needs; warm_up: left out of the evidence.
    """

    steps: tuple[tuple[str, int, float], ...]
    margins: str = WIDE
    shadow: bool = False
    lease: str = "180s"
    lost: str = "10s"
    deadline: str = "10m"
    checks: str = "{required: []}"
    warm_up: str = "1s"

    def text(self) -> str:
        """Return the section of the fleet file."""
        rows = ["    - {phase: preflight}", *(["    - {phase: shadow}"] if self.shadow else [])]
        rows += [f"    - {{phase: {name}, weight: {w}%, bake: {bake:g}s, {self.margins}}}" for name, w, bake in self.steps]
        return POLICY.format(
            lease=self.lease, lost=self.lost, deadline=self.deadline, checks=self.checks, warm_up=self.warm_up, steps="\n".join(rows)
        )


QUICK = Policy(
    steps=(("canary", 40, 1), ("ramp", 50, 1), ("full", 95, 1), ("soak", 95, 2), ("complete", 100, 0)),
    shadow=True,
)
"""Every phase, as short as evidence allows."""

HALF = Policy(steps=(("canary", 50, 110), ("complete", 100, 0)))
"""To 50 % and no further: what goes home from there went by itself or by a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command said and how it ended."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str
    seconds: float

    @property
    def last(self) -> Any:
        """The last line of its output, which is JSON."""
        return json.loads(self.out.splitlines()[-1])


class Child:
    """A command that runs beside the test."""

    def __init__(self, workspace: Path, args: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.args = tuple(args)
        self.began = time.monotonic()
        argv = [sys.executable, "-m", "fleetctl.cli.main", "-C", str(workspace), *args]
        whole = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **(env or {})}
        self.process = subprocess.Popen(
            argv, cwd=workspace, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=whole
        )

    def end(self, code: int | None = 0, within_s: float = 60.0) -> Done:
        """Wait for its end and hold its exit code against `code`."""
        try:
            out, err = self.process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            raise AssertionError(f"fleetctl {' '.join(self.args)} not over within {within_s} s:\n{out}\n{err}") from None
        done = Done(args=self.args, code=self.process.returncode, out=out, err=err, seconds=time.monotonic() - self.began)
        assert code is None or done.code == code, f"fleetctl {' '.join(self.args)} ended with {done.code}, not {code}:\n{out}\n{err}"
        return done

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal; SIGKILL unless told otherwise."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    @property
    def runs(self) -> bool:
        """Tell whether it still runs."""
        return self.process.poll() is None


class Lab:
    """A workspace with its lab."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.children: list[Child] = []
        self.plan_id = ""
        self._read: dict[str, int] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}

    # commands -----------------------------------------------------------------------------------------------------------

    def run(self, *args: str, code: int | None = 0, within_s: float = 60.0, env: Mapping[str, str] | None = None) -> Done:
        """Run one command to its end."""
        return Child(self.workspace, args, env).end(code, within_s)

    def start(self, *args: str) -> Child:
        """Start one command; it is killed when the test ends."""
        child = Child(self.workspace, args)
        self.children.append(child)
        return child

    # what is so ---------------------------------------------------------------------------------------------------------

    @property
    def record(self) -> LabRecord:
        """The lab as it was recorded."""
        return need_record(self.workspace)

    @property
    def store_path(self) -> Path:
        """Where the store lies."""
        return self.workspace / ".fleetctl" / "store.db"

    def store(self) -> SqliteStore:
        """Open the store of record."""
        return SqliteStore(self.store_path, create=False)

    def rollout(self, cell: str) -> Rollout | None:
        """Return a cell's current rollout under the plan of this test."""
        store = self.store()
        try:
            return self._of_plan(store.load(CellId(cell)))
        finally:
            store.close()

    def events(self, cell: str, after: int = 0) -> list[Event]:
        """Return a cell's events with a sequence number above `after`."""
        store = self.store()
        try:
            return list(store.events(CellId(cell), after))
        finally:
            store.close()

    def seq(self, cell: str) -> int:
        """Return the sequence number of a cell's last event."""
        return max((e.seq for e in self.events(cell)), default=0)

    def router(self) -> Router:
        """Return a router of ours over the same HAProxy or Envoy; it needs no store."""
        fleet = read_fleet(self.workspace / FLEET_FILE)
        return make_router(fleet.routers[0], {c.id: c.source for c in fleet.cells}, {})

    def weight(self, cell: str) -> int:
        """Return what the router routes to the target now, in basis points."""
        return self.router().read(CellId(cell)).target_bp

    def requests(self, cell: str) -> list[dict[str, Any]]:
        """Return the router's log lines of a cell, ours left out, in order of their end; each is parsed once."""
        folder = self.record.router_folder / "log"
        for path in sorted(folder.glob(f"{self.record.router}-*.log"), key=lambda p: int(p.stem.split("-")[1])):
            with path.open("rb") as log:
                log.seek(self._read.get(str(path), 0))
                text = log.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read[str(path)] = self._read.get(str(path), 0) + len(whole)
            for line in whole.splitlines():
                if line.startswith(b'{"c":') and (row := json.loads(line))["p"] == "-":
                    self._rows.setdefault(row["c"], []).append(row)
        return self._rows.get(cell, [])

    def errors(self, *cells: str) -> int:
        """Return how many client requests of these cells failed since the load was started."""
        return sum(sum(s.errors.values()) for s in load_stats(self.workspace) if s.cell in cells)

    def all_errors(self) -> int:
        """Return how many client requests of all cells failed."""
        return client_errors(self.workspace)

    # waiting ------------------------------------------------------------------------------------------------------------

    def wait(self, cell: str, is_so: Callable[[Rollout], bool], what: str, within_s: float = 40.0) -> Rollout:
        """Wait until a cell's rollout is as asked."""
        store, end = self.store(), time.monotonic() + within_s
        try:
            while True:
                r = self._of_plan(store.load(CellId(cell)))
                if r is not None and is_so(r):
                    return r
                assert time.monotonic() < end, f"{cell} not within {within_s} s: {what}; it is {_brief(r)}"
                time.sleep(0.05)
        finally:
            store.close()

    def wait_phase(self, cell: str, phase: str, within_s: float = 40.0) -> Rollout:
        """Wait until a cell is in a phase that the router shows, and judged there (its warm-up is over)."""

        def there(r: Rollout) -> bool:
            return r.phase == phase and r.settled_at is not None and r.settled_at.timestamp() <= time.time() and not r.ended

        return self.wait(cell, there, f"{phase}, shown by the router", within_s)

    # doing --------------------------------------------------------------------------------------------------------------

    def fault(self, kind: str, cell: str, *args: str) -> None:
        """Switch a fault on."""
        self.run("lab", "fault", kind, cell, *args)

    def clear(self, cell: str | None = None) -> None:
        """Switch every fault off."""
        lab_clear(self.workspace, cell)

    def ticker(self, *, on: bool) -> None:
        """Have a resident ticker, or none."""
        folder = self.record.folder / "units"
        if on:
            result = service.start(folder, "ticker")
            assert result.state == "running", result
        else:
            service.stop(folder, "ticker")

    def haproxy_pid(self) -> int:
        """Return the process id of HAProxy."""
        known = parts.haproxy_mark(self.record)
        assert known is not None, "HAProxy does not run"
        return known.pid

    def ticker_pid(self) -> int:
        """Return the process id of the resident ticker."""
        known = service.process_of(self.record.folder / "units", "ticker")
        assert known is not None, "no ticker runs"
        return known.pid

    def fresh(self, policy: Policy, *, ticker: bool = False) -> Lab:
        """Bring everything home, switch faults off, and make a new plan under `policy`."""
        self.end_children()
        if not self._is_whole():
            self.run("lab", "up", "--no-llm", "--no-ticker")  # the router stays the one that it was
        self.clear()
        self.ticker(on=False)
        self.home()
        self._write(policy)
        self.run("plan")
        plan = self.store().newest(Plan)
        assert plan is not None
        self.plan_id = plan.id
        if ticker:
            self.ticker(on=True)
        return self

    def end_children(self) -> None:
        """Kill what a test has left running."""
        for child in self.children:
            child.kill()
            child.end(None)
        self.children.clear()

    def home(self) -> None:
        """End every rollout and see every weight at zero."""
        store = self.store()
        try:
            if any(not r.ended or r.ended == "complete" for c in store.cells() if (r := store.load(c)) is not None):
                self.run("fallback", "--all", "--unproven")
                self.run("fallback", "--reconcile")
            wiring = App(workspace=str(self.workspace)).wiring
            driver = Driver(ports=wiring.tick_ports(), settings=wiring.tick_settings(), on_tick=lambda _: None)
            until(lambda: driver.step() == 0 and all(_is_over(store.load(c)) for c in store.cells()), "every rollout over", 30.0)
        finally:
            store.close()

    def _of_plan(self, r: Rollout | None) -> Rollout | None:
        return r if r is not None and r.plan == self.plan_id else None

    def _is_whole(self) -> bool:
        record = read_record(self.workspace)
        if record is None or not parts.router_pid(record):
            return False
        return all(service.process_of(f, u) for f, u in parts.unit_folders(record) if u != "ticker" and "mi300x" not in f.name)

    def _write(self, policy: Policy) -> None:
        path = self.workspace / FLEET_FILE
        text = re.sub(r"policy:\n.*?\nsettings:", policy.text(), path.read_text(), flags=re.DOTALL)
        shadow = "    shadow:  # a test's\n      positions: 100\n      max_mismatch: 5%\n      sample_per_s: 10\n"
        text = text.replace(shadow, "")
        if policy.shadow:
            text = text.replace("    owner: team-lab\n", f"{shadow}    owner: team-lab\n", 1)
        path.write_text(text)


def _is_over(r: Rollout | None) -> bool:
    return r is None or (bool(r.ended) and not r.orders)


def _brief(r: Rollout | None) -> str:
    if r is None:
        return "not there"
    return f"{r.phase} {r.weight_bp} bp, settled {r.settled_at}, held by {r.hold_reason!r}, ended {r.ended!r}, latched {r.latched}"


def make_lab(workspace: Path, router: str = "haproxy") -> Iterator[Lab]:
    """Bring a lab up with its target pool configured; take it down, and prove that nothing is left."""
    workspace = Path(KEPT).resolve() if KEPT else workspace
    workspace.mkdir(parents=True, exist_ok=True)
    lab = Lab(workspace)
    kept = bool(KEPT) and read_record(workspace) is not None
    try:
        if not kept:
            lab.run("lab", "up", "--no-llm", "--no-ticker", "--router", router, within_s=120)
            lab.run("plan")
            lab.run("provision", within_s=120)
            lab.run("configure", within_s=240)
        yield lab
    finally:
        lab.end_children()
        if not KEPT:
            lab.run("lab", "down", code=None)


def ms(at: datetime) -> float:
    """Return a time as epoch milliseconds."""
    return at.timestamp() * 1000


def of_kind(events: Sequence[Event], kind: str) -> list[Event]:
    """Return the events of one kind."""
    return [e for e in events if e.kind == kind]
