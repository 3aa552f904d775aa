"""A process that ticks is killed or stopped in each call that a migration makes: same end, each step once, no stale write taken.

The processes, the store's file and HAProxy are real; customers and their evidence are made up. The trap is in the ports: call by call,
before the call and after it was carried out. The processes are forked, so that hundreds of them cost seconds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.analysis.judge import fresh
from fleetctl.domain.evidence import ARMS, Arm, Counts, Cursor, Evidence, Series, Thresholds
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId, PlanId, PoolId, Token
from fleetctl.domain.rollout import Rollout
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.domain.workload import Lane
from fleetctl.ports.state import Held
from fleetctl.usecases.tick import TickPorts, TickSettings, tick
from tests.fakes.shadow import GivenShadow
from tests.fakes.small import KeptNotices, OwnedHolds
from tests.lab.haproxy_lab import CELL, SOURCE, TARGET, Rig, in_an_hour, put, rig, until
from tests.rollouts import PERSON, spec

pytestmark = [pytest.mark.crash, pytest.mark.lab]
TTL = timedelta(seconds=0.3)
WEIGHTS = (1000, 5000, 9500)
SPEC = replace(
    spec(lane=Lane(kind="accepted", reason="made up", actor=PERSON), bake_s=0.0),
    source=SOURCE,
    target=TARGET,
    warm_up=timedelta(0),
    phases=tuple(replace(p, guardrails=()) for p in spec(bake_s=0.0).phases if p.phase in ("preflight", "canary", "ramp", "full")),
)


class Now:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def wait(self, until: datetime, wake: Callable[[], bool]) -> None:
        raise AssertionError("nobody waits here")


class Fine:
    """Made-up customers who are all served well, and pools whose every replica answers."""

    def mark(self, c: CellId) -> Cursor:
        return Cursor(position="", since=datetime.now(UTC))

    def freeze(self, c: CellId, scales: tuple[float, ...], least: int) -> Thresholds | None:
        return None

    def read(self, c: CellId, since: Cursor) -> Evidence:
        arms: dict[Arm, Counts] = {a: Counts(attempts=50) for a in ARMS}
        return Evidence(cell=c, at=datetime.now(UTC), arms=arms, state=dict.fromkeys(ARMS, "ok"), cursor=since, baseline_recent=20)

    def describe(self, c: CellId) -> tuple[Series, ...]:
        return ()

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        return Readiness(pool=pool, cell=c, ready=2, total=2, age_s=0.0)


class Unfenced:
    """The same router with fencing switched off: it takes whatever anybody writes. Only to prove that the check can fail."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def set(self, s: Split) -> Applied | Stale:
        done = self._of.set(replace(s, token=self._of.read(s.cell).token))
        assert isinstance(done, Applied)
        return done


@dataclass
class Trap:
    """What happens to the process in its n-th call (of a name, "" for any): SIGKILL or SIGSTOP, before it or once it was carried out."""

    at: int = 0
    signal: int = signal.SIGKILL
    after: bool = False
    name: str = ""
    calls: int = 0

    def call(self, name: str, do: Callable[[], Any]) -> Any:
        self.calls += self.name in ("", name)
        hit = self.at == self.calls and self.name in ("", name)
        if hit and not self.after:
            os.kill(os.getpid(), self.signal)
        done = do()
        if hit and self.after:
            os.kill(os.getpid(), self.signal)
        return done


class Watched:
    """A port in which the trap lies."""

    def __init__(self, of: Any, trap: Trap) -> None:
        self._of, self._trap = of, trap

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return (lambda *a, **k: self._trap.call(name, lambda: found(*a, **k))) if callable(found) else found


@dataclass
class Migration:
    """One cell's migration in a store of its own, before the one HAProxy."""

    connection: Connection
    path: Path
    fenced: bool = True

    def begin(self) -> Migration:
        """Bring the cell home with the newest token, and start its rollout."""
        router, store = self._router(), SqliteStore(self.path)
        floor = router.read(CELL).token + 1
        put(router, 0, token=floor, lease=in_an_hour())
        store.raise_token(CELL, Token(floor))
        store.start(Rollout(cell=CELL, plan=PlanId("p0123456789a"), spec=SPEC, judge=fresh(), until="complete"), ())
        store.close()
        return self

    def _router(self) -> Any:
        from fleetctl.adapters.routers.haproxy.router import HaproxyRouter

        made = HaproxyRouter(self.connection, sources={CELL: SOURCE})
        return made if self.fenced else Unfenced(made)

    def child(self, trap: Trap, holder: str = "a", ticks: int = 200) -> int:
        """Fork a process that ticks until the cell has ended; return its id."""
        pid = os.fork()
        if pid:
            return pid
        try:
            self._tick(trap, holder, ticks)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)

    def _tick(self, trap: Trap, holder: str, ticks: int) -> None:
        store, fine = SqliteStore(self.path), Fine()
        kept, router, seen = Watched(store, trap), Watched(self._router(), trap), Watched(fine, trap)
        ports = TickPorts(
            store=kept,
            clock=Now(),
            notifier=KeptNotices(),
            holds=OwnedHolds({}),
            router=lambda _: router,
            evidence=lambda _: seen,
            shadow=lambda _: GivenShadow(),
            prober=lambda _: seen,
        )
        for _ in range(ticks):
            r = store.load(CELL)
            if r is None or r.ended:
                return
            if tick(CELL, ports, TickSettings(holder=f"{holder}:{os.getpid()}", ttl=TTL)).kind == "held":
                time.sleep(0.02)

    def run(self, trap: Trap, holder: str = "a") -> int:
        """Let one process tick until it ends or dies; return how (0, or the signal)."""
        _, status = os.waitpid(self.child(trap, holder), 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "a process failed"
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def holds_as_undisturbed(self) -> None:
        """Hold the end against that of a migration that nobody disturbed: state, weight, each step once, chains whole."""
        store = SqliteStore(self.path)
        r = store.load(CELL)
        assert r is not None
        assert (r.ended, r.phase, r.weight_bp, r.attempt, r.latched) == ("complete", "full", 9500, 1, None)
        assert self._router().read(CELL).target_bp == 9500
        events = tuple(store.events(CELL, 0))
        assert [e.data["step"] for e in events if e.kind == "rollout.step"] == [1, 2, 3]
        assert sorted({int(str(e.data["to_bp"])) for e in events if e.kind == "traffic.set"}) <= list(WEIGHTS)
        assert len([e for e in events if e.kind == "rollout.complete"]) == 1
        assert store.verify() == []
        store.close()


@pytest.fixture(scope="module")
def haproxy() -> Iterator[Rig]:
    with rig() as found:
        yield found


def calls_of(haproxy: Rig, folder: Path) -> int:
    """Return how many calls an undisturbed migration makes: one after another is a boundary."""
    m = Migration(haproxy.connection, folder / "undisturbed.db").begin()
    trap = Trap()
    m._tick(trap, "counted", 200)
    m.holds_as_undisturbed()
    return trap.calls


def killed_in_each(haproxy: Rig, folder: Path, every: int) -> tuple[int, int]:
    """Kill a process in each `every`-th boundary; return boundaries tried, and how many processes were really killed."""
    tried = killed = 0
    boundaries = [(n, after) for n in range(1, calls_of(haproxy, folder) + 1) for after in (False, True)]
    for n, after in boundaries[random.Random(every).randrange(every) :: every]:
        m = Migration(haproxy.connection, folder / f"{n}-{after}.db").begin()
        tried, killed = tried + 1, killed + (m.run(Trap(at=n, after=after)) == signal.SIGKILL)
        assert m.run(Trap(), "b") == 0
        m.holds_as_undisturbed()
    return tried, killed


def test_killed_in_a_tenth_of_all_calls_it_ends_the_same(haproxy: Rig, tmp_path: Path) -> None:
    tried, killed = killed_in_each(haproxy, tmp_path, every=10)
    assert tried == killed >= 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_in_each_call_it_ends_the_same(haproxy: Rig, tmp_path: Path) -> None:
    tried, killed = killed_in_each(haproxy, tmp_path, every=1)
    print(f"{tried} boundaries, {killed} processes killed")
    assert tried == killed >= 100


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_it_ends_the_same(haproxy: Rig, tmp_path: Path, kills: int) -> None:
    chance, done, migrations = random.Random(kills), 0, 0
    while done < kills:
        m = Migration(haproxy.connection, tmp_path / f"{migrations}.db").begin()
        migrations += 1
        for _ in range(5):
            pid = m.child(Trap())
            time.sleep(chance.uniform(0.0, 0.12))
            os.kill(pid, signal.SIGKILL)
            done += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        assert m.run(Trap(), "b") == 0
        m.holds_as_undisturbed()
    print(f"{done} kills in {migrations} migrations")


def stopped_and_revived(haproxy: Rig, folder: Path, runs: int, *, fenced: bool) -> tuple[int, int]:
    """Stop a process just before it sets a weight, let another one go on, revive it; return runs and stale writes that were taken."""
    taken = 0
    chance = random.Random(runs)
    for n in range(runs):
        m = Migration(haproxy.connection, folder / f"{fenced}-{n}.db", fenced).begin()
        at = chance.randint(1, len(WEIGHTS))
        stopped = m.child(Trap(at=at, signal=signal.SIGSTOP, name="set"), "stopped")
        assert os.WIFSTOPPED(os.waitpid(stopped, os.WUNTRACED)[1]), "it was stopped, not over"
        lease = SqliteStore(m.path)
        until(lambda lease=lease: not isinstance(lease.acquire(CELL, "looks", timedelta(0)), Held), "the stopped one's lease has lapsed")  # type: ignore[misc]
        lease.close()
        assert m.run(Trap(), "b") == 0
        stands = m._router().read(CELL)
        os.kill(stopped, signal.SIGCONT)
        os.waitpid(stopped, 0)
        after = m._router().read(CELL)
        taken += after.target_bp != stands.target_bp or after.lease_until != stands.lease_until
        if fenced:
            m.holds_as_undisturbed()
    return runs, taken


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("runs", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_no_write_of_a_stopped_and_revived_process_is_taken(haproxy: Rig, tmp_path: Path, runs: int) -> None:
    assert stopped_and_revived(haproxy, tmp_path, runs, fenced=True) == (runs, 0)


def test_without_fencing_stale_writes_are_taken(haproxy: Rig, tmp_path: Path) -> None:
    runs, taken = stopped_and_revived(haproxy, tmp_path, 5, fenced=False)
    print(f"{taken} of {runs} stale writes were taken")
    assert taken > 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("runs", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_two_processes_that_race_end_the_same(haproxy: Rig, tmp_path: Path, runs: int) -> None:
    for n in range(runs):
        m = Migration(haproxy.connection, tmp_path / f"{n}.db").begin()
        pids = [m.child(Trap(), holder, ticks=2_000) for holder in ("a", "b")]
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
        m.holds_as_undisturbed()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "weight_bp", [100, pytest.param(500, marks=pytest.mark.slow), 1000, pytest.param(2500, marks=pytest.mark.slow), 5000]
)
def test_haproxy_killed_at_any_weight_comes_back_with_it(haproxy: Rig, weight_bp: int) -> None:
    router = haproxy.router()
    put(router, weight_bp, token=router.read(CELL).token + 1, lease=in_an_hour())
    pid = haproxy.process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not haproxy.process.is_running(), "HAProxy is gone")
    haproxy.process.start()
    assert haproxy.router().read(CELL).target_bp == weight_bp
