"""The guard beside a router that keeps no lease: home when nobody renews and the source is proven, else held and said."""

from __future__ import annotations

import os
import pwd
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from fleetctl.adapters.home.files import WayHomeFiles, make_key
from fleetctl.adapters.notify.log import LogNotifier
from fleetctl.adapters.timer import guard_unit
from fleetctl.cli.main import cli
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.split import Applied, Readiness, Split, Stale
from fleetctl.errors import FleetctlError, TrafficNotApplied
from fleetctl.ports.traffic import Prober, Router
from fleetctl.usecases.guard import Shown, guard, notices
from fleetctl.usecases.home import HomePorts, fallback
from fleetctl.usecases.home_choice import readable
from tests.fakes.clock import FakeClock
from tests.fakes.router import EPOCH, FakeRouter, Target
from tests.fakes.store import MemoryStore

CHAT, SUMMARY = CellId("chat"), CellId("summary")
SOURCE = PoolId("nvidia")


class Ready:
    """Answers for the source what the test wants."""

    def __init__(self) -> None:
        self.ready_now, self.age_s, self.asked = 2, 0.0, 0

    def ready(self, pool: PoolId, c: CellId) -> Readiness:
        self.asked += 1
        return Readiness(pool=pool, cell=c, ready=self.ready_now, total=2, age_s=self.age_s, detail="" if self.ready_now else "status 500")


class World:
    """Two cells behind a router of one kind, and whoever ticks them."""

    def __init__(self, folder: Path, kind: str = "envoy") -> None:
        self.clock = FakeClock()
        self.target = Target([CHAT, SUMMARY])
        self.writer = FakeRouter({CHAT: SOURCE, SUMMARY: SOURCE}, target=self.target)
        self.prober = Ready()
        make_key(folder / "key")
        self.ways = WayHomeFiles(folder / "home", folder / "key")
        for cell in (CHAT, SUMMARY):
            self.ways.write(
                WayHome(
                    fleet="f",
                    cell=cell,
                    workload=WorkloadId("w"),
                    region="r",
                    tenant="",
                    klass="online",
                    router=Connection(name="edge", kind=kind),
                    source=SOURCE,
                    cap_bp=10_000,
                    paper=(),
                    made_at=self.clock.now(),
                )
            )

    def ports(self) -> HomePorts:
        def router(_: WayHome) -> Router:
            return FakeRouter({CHAT: SOURCE, SUMMARY: SOURCE}, target=self.target)

        def prober(_: WayHome) -> Prober:
            return self.prober

        return HomePorts(router=router, prober=prober, ways=self.ways, clock=self.clock, store=lambda: MemoryStore(self.clock.now))

    def put(self, cell: CellId, bp: int, seconds: float = 180.0) -> None:
        self.writer.fence(cell, Token(self.target.splits[cell].token + 1))
        until = self.clock.now() + timedelta(seconds=seconds)
        token = self.target.splits[cell].token
        assert isinstance(self.writer.set(Split(cell=cell, target_bp=bp, cap_bp=10_000, token=token, lease_until=until)), Applied)

    def look(self) -> dict[str, str]:
        return {found.cell: found.kind for found in guard(self.ports())}


def test_a_lease_that_runs_is_watched_and_one_that_has_lapsed_goes_home_with_the_next_token(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    assert w.look() == {CHAT: "watched", SUMMARY: "quiet"}
    assert w.prober.asked == 0, "nobody is asked while all is well"
    w.clock.advance(timedelta(seconds=181))
    token = w.target.splits[CHAT].token
    assert w.look() == {CHAT: "home", SUMMARY: "quiet"}
    assert (w.target.splits[CHAT].target_bp, w.target.splits[CHAT].token) == (0, token + 1)
    late = Split(cell=CHAT, target_bp=1_000, cap_bp=10_000, token=token, lease_until=w.clock.now() + timedelta(seconds=180))
    assert isinstance(w.writer.set(late), Stale), "a holder that was stopped before the guard cannot write after it"
    assert w.look() == {CHAT: "quiet", SUMMARY: "quiet"}


def test_it_holds_and_says_so_while_the_source_proves_nothing_and_goes_home_when_it_does(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 2_500)
    w.clock.advance(timedelta(seconds=200))
    w.prober.ready_now = 0
    (held,) = [found for found in guard(w.ports()) if found.cell == CHAT]
    assert held.kind == "held"
    assert held.text == (
        "holds 25 % on the target: its lease has lapsed 20 s ago, and no replica of nvidia answers a completion (status 500)"
    )
    assert w.target.splits[CHAT].target_bp == 2_500
    w.prober.ready_now, w.prober.age_s = 2, 61.0
    (held,) = [found for found in guard(w.ports()) if found.cell == CHAT]
    assert (held.kind, held.text[-45:]) == ("held", "and the last completion of nvidia is 61 s old")
    w.prober.age_s = 60.0
    assert w.look()[CHAT] == "home"


def test_no_more_go_home_than_ready_replicas_of_the_source_can_take(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 9_500)
    w.clock.advance(timedelta(seconds=181))
    w.prober.ready_now = 1
    (part,) = [found for found in guard(w.ports()) if found.cell == CHAT]
    assert part.kind == "part"
    assert part.text == (
        "took 45 % home: its lease has lapsed 1 s ago; 50 % stay on the target: 1 of 2 replicas of nvidia answer a completion"
    )
    assert w.target.splits[CHAT].target_bp == 5_000
    assert w.look()[CHAT] == "held", "no more of it answers"
    w.prober.ready_now = 2
    assert w.look()[CHAT] == "home"


def test_a_source_that_hangs_holds_up_no_other_cell(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    w.put(SUMMARY, 1_000)
    w.clock.advance(timedelta(seconds=200))
    answered, order = threading.Event(), list[CellId]()

    class Hangs(Ready):
        def ready(self, pool: PoolId, c: CellId) -> Readiness:
            if c == CHAT:
                assert answered.wait(20), "the other cell waited for this one"
            order.append(c)
            answered.set()
            return super().ready(pool, c)

    w.prober = Hangs()
    assert w.look() == {CHAT: "home", SUMMARY: "home"}
    assert order == [SUMMARY, CHAT]


def test_people_are_told_once_of_each_matter_and_again_when_it_comes_back(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 9_500)
    w.clock.advance(timedelta(seconds=181))
    told: dict[CellId, str] = {}

    def tell(ready: int) -> list[tuple[str, str]]:
        w.prober.ready_now = ready
        return [(e.kind, str(e.data["cause"])) for e in notices(guard(w.ports()), told, w.clock.now())]

    assert tell(0) == [("notify.page", "guard.held")]
    assert (tell(0), tell(1)) == ([], []), "part of it is home: the same matter"
    w.target.down = True
    assert tell(1) == [("notify.page", "guard.lost")] * 2
    assert tell(1) == []
    w.target.down = False
    assert tell(2) == [("notify.warning", "guard.home")]
    assert tell(2) == []
    w.put(CHAT, 1_000)
    w.clock.advance(timedelta(seconds=181))
    assert tell(0) == [("notify.page", "guard.held")]


def test_a_source_with_a_backend_of_its_own_name_is_unknown_to_our_lua_and_so_the_guards(tmp_path: Path) -> None:
    w = World(tmp_path, "haproxy")
    w.ways.write(replace(w.ways.read(CHAT), baseline_backend="chat_nvidia"))
    w.ways.write(replace(w.ways.read(SUMMARY), baseline_backend="summary_baseline"))
    w.put(CHAT, 1_000)
    w.put(SUMMARY, 1_000)
    w.clock.advance(timedelta(seconds=200))
    assert w.look() == {CHAT: "home", SUMMARY: "held"}
    assert w.target.splits[SUMMARY].target_bp == 1_000, "its own guard's business"


def test_one_router_that_is_down_or_one_way_home_that_is_forged_keeps_no_other_cell_from_home(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    w.put(SUMMARY, 1_000)
    w.clock.advance(timedelta(seconds=200))
    (tmp_path / "home" / f"{CHAT}.json").write_text("{}")
    assert w.look() == {CHAT: "lost", SUMMARY: "home"}


def test_a_controller_that_comes_back_in_this_moment_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    w.clock.advance(timedelta(seconds=200))
    real = Ready.ready

    def meanwhile(self: Ready, pool: PoolId, c: CellId) -> Readiness:
        w.put(CHAT, 1_000)
        return real(self, pool, c)

    monkeypatch.setattr(Ready, "ready", meanwhile)
    assert w.look()[CHAT] == "watched"
    assert w.target.splits[CHAT].target_bp == 1_000


def test_a_weight_that_was_never_ours_is_left_alone_and_said(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.target.splits[CHAT] = Split(cell=CHAT, target_bp=5_000, cap_bp=10_000, token=Token(0), lease_until=EPOCH)
    (seen,) = [found for found in guard(w.ports()) if found.cell == CHAT]
    said = "leaves 50 % as it is: the router shows no mark of ours, so fleetctl never set it, or its mark is lost"
    assert (seen.kind, seen.text) == ("foreign", said)
    told: dict[CellId, str] = {}
    assert [(e.kind, e.text) for e in notices((seen,), told, w.clock.now())] == [("notify.page", f"{CHAT}: the guard {said}")]
    assert notices((seen,), told, w.clock.now()) == (), "of each matter once"
    assert w.target.splits[CHAT].target_bp == 5_000


def test_a_weight_taken_home_that_what_routes_has_not_seen_pages(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    w.clock.advance(timedelta(seconds=200))
    w.writer.unseen = "gateway edge has not said that it has seen the weights that stand"
    (seen,) = [found for found in guard(replace(w.ports(), router=lambda _: w.writer)) if found.cell == CHAT]
    assert w.target.splits[CHAT].target_bp == 0
    (told,) = notices((seen,), {}, w.clock.now())
    assert (told.kind, "not proven: gateway edge" in told.text) == ("notify.page", True)


def test_one_router_that_breaks_in_a_way_nobody_expected_keeps_no_other_cell_from_home(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    w.put(SUMMARY, 1_000)
    w.clock.advance(timedelta(seconds=200))
    usual = w.ports()

    def router(way: WayHome) -> Router:
        if way.cell == CHAT:
            raise ValueError("invalid endpoint")
        return usual.router(way)

    ports = replace(usual, router=router)
    assert {found.cell: found.kind for found in guard(ports)} == {CHAT: "lost", SUMMARY: "home"}
    w.put(SUMMARY, 1_000)
    results = fallback(readable(w.ways)[0], ports, Actor(kind="person", name="ada", via="cli"))
    assert [type(r).__name__ for r in results] == ["Failure", "Returned"]


def test_what_a_routers_own_guard_holds_or_took_home_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    w, shown, told = World(tmp_path, "haproxy"), Shown(), dict[CellId, str]()

    def look() -> list[tuple[str, str]]:
        events = notices(guard(w.ports(), shown), told, w.clock.now())
        return [(e.kind, str(e.data["cause"])) for e in events]

    w.put(CHAT, 1_000)
    assert look() == []
    w.clock.advance(timedelta(seconds=182))
    assert look() == [], "its own guard may still be at it"
    w.clock.advance(timedelta(seconds=10))
    assert look() == [("notify.page", "guard.held")]
    assert look() == []
    before = w.target.splits[CHAT]
    assert before.target_bp == 1_000
    w.target.splits[CHAT] = replace(before, target_bp=500)
    assert look() == [], "the same matter"
    w.target.splits[CHAT] = replace(before, target_bp=0)
    (home,) = [x for x in guard(w.ports(), dict(shown)) if x.cell == CHAT]
    assert (home.kind, home.text) == ("home", "of its router took 5 % home: its lease has lapsed 12 s ago")
    assert look() == [("notify.warning", "guard.home")]
    assert look() == []
    assert w.prober.asked == 0
    assert w.target.applied[-1].target_bp == 1_000, "nothing was written"


def test_a_person_or_a_controller_that_goes_home_is_no_guard(tmp_path: Path) -> None:
    w, shown = World(tmp_path, "haproxy"), Shown()
    w.put(CHAT, 1_000)
    guard(w.ports(), shown)
    w.clock.advance(timedelta(seconds=200))
    w.put(CHAT, 0)
    assert {x.kind for x in guard(w.ports(), shown)} == {"quiet"}


def test_a_dead_router_is_lost_never_home(tmp_path: Path) -> None:
    w = World(tmp_path)
    w.put(CHAT, 1_000)
    w.target.down = True
    assert w.look() == {CHAT: "lost", SUMMARY: "lost"}
    with pytest.raises(TrafficNotApplied):
        w.writer.read(CHAT)


def test_the_unit_starts_it_again_and_takes_no_line_break() -> None:
    argv = ["/usr/bin/python3", "-m", "fleetctl.cli.main", "-C", "/srv/50% of it", "guard"]
    text = guard_unit(argv, Path("/srv/50% of it"), "/usr/bin", "ops")
    assert 'ExecStart="/usr/bin/python3" "-m" "fleetctl.cli.main" "-C" "/srv/50%% of it" "guard"' in text
    assert "Restart=always" in text
    assert "\nUser=ops\n" in text
    for folder, user in (("/a\nb", "ops"), ("/a", "ops\nExecStartPre=/x")):
        with pytest.raises(FleetctlError, match="line break"):
            guard_unit(["/x"], Path(folder), "/usr/bin", user)


def test_the_unit_runs_as_whoever_can_read_the_workspaces_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def printed() -> str:
        done = CliRunner().invoke(cli, ["-C", str(tmp_path), "guard", "--print-unit"])
        assert done.exit_code == 0, done.output
        return next(line for line in done.output.splitlines() if line.startswith("User="))

    real = pwd.getpwuid(os.geteuid())
    assert printed() == f"User={real.pw_name}"
    (tmp_path / ".fleetctl").mkdir(exist_ok=True)
    people = {os.geteuid(): ("ops", 1000)}
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name=people[uid][0], pw_uid=people[uid][1]))
    assert printed() == "User=ops"
    people[os.geteuid()] = ("CORP\\ops %n", 1000)
    assert printed() == "User=1000", "what systemd would read as more than a name is a number"
    people.clear()
    done = CliRunner().invoke(cli, ["-C", str(tmp_path), "guard", "--print-unit"])
    assert isinstance(done.exception, FleetctlError)
    assert done.exception.code == "timer.owner"


def test_the_command_pages_what_it_could_not_read(tmp_path: Path) -> None:
    sent: list[Event] = []
    make_key(tmp_path / ".fleetctl" / "key")
    (tmp_path / ".fleetctl" / "home").mkdir()
    (tmp_path / ".fleetctl" / "home" / "chat.json").write_text("{}")
    with pytest.MonkeyPatch.context() as m:
        m.setattr(LogNotifier, "send", lambda self, e: sent.append(e))
        done = CliRunner().invoke(cli, ["-C", str(tmp_path), "guard", "--once"])
    assert done.exit_code == 1
    assert [(e.kind, e.cell, e.data["cause"]) for e in sent] == [("notify.page", CHAT, "guard.lost")]


def test_the_command_looks_once_where_there_is_nothing(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["-C", str(tmp_path), "guard", "--once"])
    assert (done.exit_code, done.output) == (0, "0 cells looked at\n")
