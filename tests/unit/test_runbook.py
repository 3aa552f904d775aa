"""Runbooks: their shape, what they look like, stepping through, resuming after a kill, what is refused, and rehearsals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fleetctl.adapters.home.files import WayHomeFiles, make_key
from fleetctl.adapters.runbooks import JournalFile, OwnCommands, RehearsalFile
from fleetctl.cli.main import cli
from fleetctl.cli.registry import COMMANDS
from fleetctl.domain.event import Event
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import WayHome
from fleetctl.domain.ids import CellId, PoolId, Token, WorkloadId
from fleetctl.domain.people import Actor
from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import Bound, Fault, JournalLine, LiveName, LiveValue, Step, Timing, spreads
from fleetctl.domain.split import Readiness, Split
from fleetctl.errors import ConfigInvalid, FleetctlError, LeaseHeld, RunbookFailed, StoreUnavailable, UnsafeFallback
from fleetctl.formats.runbook_file import ORDER, load_runbook, parse_runbook
from fleetctl.lab.breakable import LabBreakable
from fleetctl.lab.faults import check_fault
from fleetctl.ports.runbook import Ended
from fleetctl.usecases import drill
from fleetctl.usecases.home import HomePorts
from fleetctl.usecases.runbook import END, Answer, LookPorts, RunPorts, bind, find_cell, look, unexpected, walk
from fleetctl.views.runbook import rehearsal_lines, runbook_lines, triage_lines
from tests.fakes.clock import START, FakeClock
from tests.fakes.home import MemoryWaysHome
from tests.fakes.router import EPOCH, FakeRouter
from tests.fakes.store import MemoryStore

ROOT = Path(__file__).resolve().parents[2]
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

    def __init__(self, *ways: WayHome, weight_bp: int = 5_000) -> None:
        self.clock, self.prober, self.ways = FakeClock(), Prober(), MemoryWaysHome()
        for w in ways or (way(),):
            self.ways.write(w)
        self.router = FakeRouter(dict.fromkeys(self.ways.cells(), SOURCE))
        self.weight(weight_bp)
        self.store = MemoryStore(self.clock)
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


class Answers:
    """Commands that print what their step expects, unless told otherwise."""

    def __init__(self, bound: Bound, *, wrong: str = "", dies_at: str = "") -> None:
        self.steps = {s.command[1:]: s for s in bound.runbook.all_steps if s.command}
        self.wrong, self.dies_at = wrong, dies_at
        self.ran: list[str] = []

    def run(self, words: Sequence[str], limit_s: float) -> Ended:
        step = self.steps[tuple(words)]
        self.ran.append(step.id)
        if step.id == self.dies_at:
            raise KeyboardInterrupt
        good = {
            "look": f"{CELL}\n",
            "go-home": f"cell/{CELL} home: 50 % -> 0 % in 9 ms\n1 of 1 home; slowest\n",
            "reconcile": "Nothing to reconcile.",
            "at-zero": "weight        0 % on the target\nsource        2 of 2 replicas\n",
            "nothing-moves": f"{CELL}  canary  0 %  -  fell back\n",
        }
        return Ended(exit_code=1 if step.id == self.wrong else 0, output=good.get(step.id, ""), seconds=0.5)


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


# the data -------------------------------------------------------------------------------------------------------------------


def test_every_file_is_listed_and_holds() -> None:
    there = {p.stem for p in (ROOT / "fleetctl/formats/runbooks").glob("*.yaml")}
    assert there == set(ORDER)
    for name in ORDER:
        book = load_runbook(name)
        assert book.id == name
        assert END not in {s.id for s in book.all_steps}
        if book.fault is not None:
            check_fault(book.fault.kind, book.fault.numbers)


def parsed(words: Sequence[str]) -> click.Context:
    """Parse a command line as the program would, without running it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="fleetctl")
    rest = list(words[1:])
    while isinstance(command, click.Group):
        inner = command.get_command(context, rest[0])
        assert inner is not None, f"no command {rest[0]}"
        if isinstance(inner, click.Group):
            command, context = inner, click.Context(inner, info_name=rest.pop(0), parent=context)
        else:
            return inner.make_context(rest[0], rest[1:], parent=context)
    raise AssertionError(words)


@pytest.mark.parametrize("name", ORDER)
def test_every_command_parses_as_one_of_the_program(name: str) -> None:
    world = World()
    for step in world.bound(name).runbook.all_steps:
        if step.command:
            assert "{" not in " ".join(step.command)
            assert parsed(step.command).command is not None


def test_a_command_that_does_not_parse_is_seen() -> None:
    with pytest.raises(click.UsageError):
        parsed(("fleetctl", "fallback", "--brand-new"))


PROSE = {"checks", "itself", "counts", "moves", "sees", "cannot", "does", "was", "and"}
"""Words after the program's name in sentences about it."""


@pytest.mark.parametrize("name", ORDER)
def test_every_command_that_a_text_names_is_there(name: str) -> None:
    text = (ROOT / f"fleetctl/formats/runbooks/{name}.yaml").read_text()
    for first, second in re.findall(r"(?<!\.)fleetctl ([a-z]+)(?: ([a-z]+))?", text):
        if first in PROSE:
            continue
        assert first in COMMANDS, first
        if first in ("runbook", "audit"):
            parent = click.Context(cli, info_name="fleetctl")
            group = cli.get_command(parent, first)
            assert isinstance(group, click.Group)
            assert group.get_command(parent, second) is not None, (first, second)


GOOD = (ROOT / "fleetctl/formats/runbooks/one-region.yaml").read_text()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title: ", "colour: red\ntitle: ", "colour: Extra inputs"),
        ("severity: SEV 1", "severity: SEV 9", "severity"),
        ("command: fleetctl fallback {region_cells}\n", "command: rm -rf {cell}\n", "begins with fleetctl"),
        ("command: fleetctl fallback {region_cells}\n", "command: fleetctl fallback $(id)\n", "no plain word"),
        ("command: fleetctl fallback {region_cells}\n", "command: fleetctl fallback {secret}\n", "no plain word"),
        ("command: fleetctl fallback {region_cells}\n", "command: fleetctl fallback {cell} --unproven\n", "severe and carries no danger"),
        ("command: fleetctl fallback {region_cells}\n", "by_hand: Go.\n", "done by hand"),
        ("    budget: 10s\n", "", "budget"),
        ("id: go-home", "id: look", "stands twice"),
        ("{region} go home.", "{nowhere} go home.", "knows no {nowhere}"),
        ("kind: errors", "kind: meteor", "fault.kind"),
        ('pattern: "(?m)^{cell}$"', 'pattern: "((("', "regular expression"),
        ("format_version: 1", "format_version: 2", "format_version"),
        ("format_version: 1", "format_version: !!python/object:os.system 1", "tag"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigInvalid) as e:
        parse_runbook("one-region", GOOD.replace(old, new, 1))
    assert any(said in d and d.startswith("one-region.yaml:") for d in e.value.details), e.value.details


def test_an_unknown_runbook_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="there is no runbook"):
        load_runbook("../../etc/passwd")


# for a cell -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDER)
def test_a_page_fits_80_columns_and_has_every_part(name: str) -> None:
    lines = runbook_lines(World().bound(name), None)
    assert max(map(len, lines)) <= 80
    heads = ["WHEN", "IMPACT", "NOW (read only)", "DECIDE", "DO", "VERIFY", "TELL PEOPLE", "CALL", "AFTER", "NOT COVERED"]
    assert [x for x in lines if x in heads] == heads
    assert "{" not in "\n".join(lines)
    assert lines[-1] == "Last rehearsal: never rehearsed"


def test_a_region_is_named_cell_by_cell() -> None:
    world = World(way(), way("search-east"), way("chat-west", "westus"))
    words = world.bound("one-region").runbook.steps[1].command
    assert words == ("fleetctl", "fallback", "chat-east", "search-east")


def test_with_the_store_down_live_values_say_not_known() -> None:
    world = World()
    world.at = StoreUnavailable("store.unreachable", "the disk is gone.")
    bound = world.bound()
    assert (bound.live["store"].is_good, bound.live["migration"].text) == (False, "not known: the store does not answer")
    assert bound.live["weight"].text.startswith("50 %")
    world.router.target.down = True
    live = world.bound().live
    assert (live["router"].is_good, live["weight"].is_good) == (False, None)


def test_a_tampered_way_home_is_said_and_nothing_of_it_used() -> None:
    world = World()
    world.ways.tampered.add(CELL)
    found = find_cell(CELL, world.look)
    assert isinstance(found, UnsafeFallback)
    live = look(CELL, found, world.look)
    assert live["way_home"].is_good is False
    page = "\n".join(runbook_lines(bind(load_runbook("store-down"), CELL, found, live, world.look), None))
    assert "fallback.tampered" in page


def test_names_that_are_not_there_or_many() -> None:
    world = World(way(), way("chat-west", "westus"))
    with pytest.raises(UnsafeFallback, match="no workload or cell"):
        find_cell("nobody", world.look)
    with pytest.raises(RunbookFailed, match="has 2 cells"):
        find_cell("chat", world.look)


def test_a_cell_is_found_beside_its_cohorts() -> None:
    world = World(way(), replace(way("chat-cohort"), part_of=(CELL, "chat")))
    assert find_cell(CELL, world.look) == way()


def test_hostile_texts_cannot_drive_a_terminal() -> None:
    world = World()
    world.at = "canary \x1b[2J\u202e\r\nVERIFY evil"
    page = runbook_lines(world.bound(), None) + triage_lines([world.bound()])
    assert all(line.isprintable() for line in page)
    bad = Timing(
        at=world.clock.now(), actor=Actor(kind="person", name="\x1b]0;x\x07"), cell=CELL, runbook="r\n", fault="x\x9b", detect_s=None,
        decide_s=1.0, zero_s=2.0, verified_s=None, by="judge", is_ok=False, detail="\x1b[1m",
    )  # fmt: skip
    assert all(line.isprintable() for line in rehearsal_lines(bad, spreads([bad]), 90.0))


# stepping through -----------------------------------------------------------------------------------------------------------


def test_a_run_does_every_step_and_keeps_a_journal(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    commands = Answers(bound)
    end = walk(bound, ports(world, bound, commands, tmp_path))
    assert commands.ran == ["look", "go-home", "reconcile", "at-zero", "nothing-moves"]
    states = [(x.step, x.state) for x in JournalFile(tmp_path, CELL, "full-fallback").lines()]
    assert states[:3] == [("look", "begun"), ("look", "done"), ("go-home", "begun")]
    assert ("unproven", "skipped") in states
    assert states[-1] == (END, "done")
    assert not end.resumed
    assert [e.kind for e in world.store.events(CELL, 0)] == ["runbook.done"]
    again = walk(bound, ports(world, bound, commands, tmp_path))
    assert not again.resumed, "a run that has ended is not resumed"
    assert (tmp_path / "chat-east.full-fallback.jsonl").stat().st_mode & 0o777 == 0o600


def test_after_a_kill_it_goes_on_at_the_step_that_did_not_finish(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    with pytest.raises(KeyboardInterrupt):
        walk(bound, ports(world, bound, Answers(bound, dies_at="go-home"), tmp_path))
    with (tmp_path / "chat-east.full-fallback.jsonl").open("ab") as f:
        f.write(b'{"_":"JournalLine","actor":{"_":"Ac')  # what a power cut leaves
    asked: list[tuple[str, str]] = []
    commands = Answers(bound)
    end = walk(bound, ports(world, bound, commands, tmp_path, asked))
    assert end.resumed
    assert commands.ran[0] == "go-home"
    assert asked[0][0] == "go-home"
    assert "was begun at" in asked[0][1]


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.unit.test_runbook import CELL, Answers, World, ports, walk
world = World(); bound = world.bound(); commands = Answers(bound)
def run(words, limit_s, inner=commands.run):
    ended = inner(words, limit_s)
    if commands.ran[-1] == "reconcile":
        os.kill(os.getpid(), signal.SIGKILL)
    return ended
commands.run = run
walk(bound, ports(world, bound, commands, Path(sys.argv[1])))
"""


def test_a_process_killed_for_good_leaves_a_journal_that_is_resumed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)], capture_output=True, check=False, timeout=60)
    assert done.returncode == -9, done.stderr
    world = World()
    bound = world.bound()
    commands = Answers(bound)
    assert walk(bound, ports(world, bound, commands, tmp_path)).resumed
    assert commands.ran == ["reconcile", "at-zero", "nothing-moves"]


def test_a_step_that_is_not_as_expected_stops_the_run_and_is_done_again(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    with pytest.raises(RunbookFailed, match="it ended with 1, not 0") as e:
        walk(bound, ports(world, bound, Answers(bound, wrong="go-home"), tmp_path))
    assert e.value.code == "runbook.unexpected"
    assert "fleetctl retry chat-east" in e.value.hint
    commands = Answers(bound)
    walk(bound, ports(world, bound, commands, tmp_path))
    assert commands.ran[0] == "go-home"


def test_verification_is_repeated_until_it_holds_and_no_longer_than_its_time(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    commands = Answers(bound, wrong="at-zero")
    with pytest.raises(RunbookFailed, match="step at-zero"):
        walk(bound, ports(world, bound, commands, tmp_path))
    assert commands.ran.count("at-zero") == 61, "30 s, every half second"


def test_a_precondition_that_fails_or_is_not_known_runs_nothing(tmp_path: Path) -> None:
    world = World()
    world.prober.ready_now = 0
    bound = world.bound("partial-fallback")
    commands = Answers(bound)
    with pytest.raises(RunbookFailed) as e:
        walk(bound, ports(world, bound, commands, tmp_path))
    assert (e.value.code, commands.ran) == ("runbook.precondition", [])
    assert "capacity-lost" in e.value.hint
    world.router.target.down = True
    bound = world.bound()
    with pytest.raises(RunbookFailed, match="router"):
        walk(bound, ports(world, bound, commands, tmp_path))
    assert not list(tmp_path.iterdir())


def test_other_steps_than_those_begun_are_refused(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    with pytest.raises(KeyboardInterrupt):
        walk(bound, ports(world, bound, Answers(bound, dies_at="go-home"), tmp_path))
    first, *others = bound.runbook.steps
    changed = replace(bound, runbook=replace(bound.runbook, steps=(replace(first, command=(*first.command, "-o", "json")), *others)))
    commands = Answers(changed)
    with pytest.raises(RunbookFailed, match="other steps"):
        walk(changed, ports(world, changed, commands, tmp_path))
    walk(changed, ports(world, changed, commands, tmp_path), again=True)


def test_two_at_once_and_a_journal_of_rubbish(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    with JournalFile(tmp_path, CELL, "full-fallback").alone(), pytest.raises(LeaseHeld, match="somebody steps through"):
        walk(bound, ports(world, bound, Answers(bound), tmp_path))
    (tmp_path / "chat-east.full-fallback.jsonl").write_bytes(b"rubbish\n")
    with pytest.raises(RunbookFailed) as e:
        walk(bound, ports(world, bound, Answers(bound), tmp_path))
    assert e.value.code == "runbook.journal"
    walk(bound, ports(world, bound, Answers(bound), tmp_path), again=True)


@pytest.mark.parametrize("name", ["../x", "a b", "-x", ""])
def test_a_journal_never_leaves_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        JournalFile(tmp_path, CellId(name), "full-fallback")


def test_what_is_expected() -> None:
    step = World().bound().runbook.steps[1]
    assert unexpected(step, Ended(exit_code=None, output="", seconds=90.0)) == "it did not end within 90 s and was stopped"
    assert "ended with 1" in unexpected(step, Ended(exit_code=1, output="", seconds=1.0))
    assert "not what is expected" in unexpected(step, Ended(exit_code=0, output="cell/other home: 1 of 1 home", seconds=1.0))


# the command line -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a workspace with a way home over a router that nobody can reach, and no store."""
    monkeypatch.setenv("FLEETCTL_WORKSPACE", str(tmp_path))
    (tmp_path / ".fleetctl").mkdir(mode=0o700)
    make_key(tmp_path / ".fleetctl/key")
    settings = {"socket": str(tmp_path / "none.sock"), "map_folder": str(tmp_path), "address": "127.0.0.1:9", "log_folder": str(tmp_path)}
    router = Connection(kind="haproxy", name="edge", settings=settings)
    WayHomeFiles(tmp_path / ".fleetctl/home", tmp_path / ".fleetctl/key").write(replace(way(), router=router))
    return tmp_path


def test_show_with_the_store_and_the_router_gone(workspace: Path) -> None:
    done = CliRunner().invoke(cli, ["runbook", "show", "chat-east"])
    assert done.exit_code == 0, done.output
    assert "migration     ! not known" in done.output
    assert "full-fallback" in done.output
    assert max(map(len, done.output.splitlines())) <= 80
    whole = json.loads(CliRunner().invoke(cli, ["runbook", "show", "chat", "full-fallback", "-o", "json"]).stdout)
    assert whole["cell"] == "chat-east"
    assert whole["runbooks"][0]["runbook"]["steps"][1]["command"] == ["fleetctl", "fallback", "--all"]
    assert {v["name"]: v["is_good"] for v in whole["live"]}["store"] is False
    assert "store.db" not in os.listdir(workspace / ".fleetctl")


def test_run_without_a_terminal_needs_yes_and_a_failing_precondition_runs_nothing(workspace: Path) -> None:
    refused = CliRunner().invoke(cli, ["runbook", "run", "chat-east", "full-fallback"])
    assert isinstance(refused.exception, FleetctlError)
    assert refused.exception.code == "usage.confirm"
    refused = CliRunner().invoke(cli, ["runbook", "run", "chat-east", "full-fallback", "--yes"])
    assert isinstance(refused.exception, RunbookFailed)
    assert refused.exception.code == "runbook.precondition"
    assert not (workspace / ".fleetctl/runbooks").exists()


def test_yes_never_runs_what_is_dangerous_and_a_person_must_type_the_name(workspace: Path) -> None:
    from fleetctl.cli.app import App
    from fleetctl.cli.commands.runbook import _asker

    bound = World().bound()
    (danger,) = [s for s in bound.runbook.steps if s.danger]
    app = App(workspace=str(workspace))
    assert _asker(app, bound, yes=True, confirm=str(CELL))(danger, "") == "skip"
    ask = _asker(app, bound, yes=False, confirm="other-cell")

    @click.command()
    def prompted() -> None:
        click.echo(ask(danger, ""))

    done = CliRunner().invoke(prompted, input="y\n")
    assert isinstance(done.exception, FleetctlError)
    assert done.exception.code == "usage.confirm"
    ask = _asker(app, bound, yes=False, confirm=str(CELL))
    assert CliRunner().invoke(prompted, input="y\n").stdout.endswith("run\n")


def test_own_commands_run_this_program_and_are_stopped_at_their_limit(workspace: Path) -> None:
    commands = OwnCommands(workspace)
    done = commands.run(("version",), 30.0)
    assert (done.exit_code, "fleetctl" in done.output) == (0, True)
    assert commands.run(("no-such-command",), 30.0).exit_code == 2
    assert commands.run(("guard", "--every", "60"), 1.5).exit_code is None


# rehearsals -----------------------------------------------------------------------------------------------------------------


class Place:
    """Where things may be broken: the judge of this world takes the cell home, or nobody does."""

    def __init__(self, world: World, *, judge: bool, refusal: str = "") -> None:
        self.world, self.judge, self.refusal = world, judge, refusal
        self.said: list[str] = []

    def refuses(self, c: CellId) -> str:
        return self.refusal

    def inject(self, c: CellId, fault: Fault) -> None:
        self.said.append(fault.kind)
        if self.judge:
            self.world.clock.advance(timedelta(seconds=4))
            actor = Actor(kind="judge", name="judge", via="timer")
            self.world.store.append((Event(at=self.world.clock.now(), kind="verdict.fail", actor=actor, text="errors", cell=c),))
            self.world.weight(0)

    def mend(self, c: CellId) -> None:
        self.said.append("mended")


def rehearsal(world: World, bound: Bound, place: Place, folder: Path, commands: Answers) -> drill.DrillPorts:
    return drill.DrillPorts(
        place=place,
        look=world.look,
        run=ports(world, bound, commands, folder),
        events=lambda: tuple(world.store.events(CELL, 0)),
        rehearsals=RehearsalFile(folder),
        records=world.store,
    )


def test_a_rehearsal_is_timed_kept_and_read_by_the_release_gate(tmp_path: Path) -> None:
    for n in (1, 2):
        world = World()
        bound = world.bound()
        place = Place(world, judge=True)
        found = find_cell(CELL, world.look)
        done = drill.rehearse(bound, found, rehearsal(world, bound, place, tmp_path, Answers(bound)), goal_s=90, watch_s=60)
        assert place.said == ["errors", "mended"]
        t = done.timing
        assert (t.is_ok, t.by, t.detect_s, t.decide_s, t.zero_s) == (True, "judge", 4.0, 4.0, 4.0)
        kept = world.store.get(Drill, CELL)
        assert kept is not None
        assert (kept.ok, kept.cell) == (True, CELL)
        assert {s.part: s.runs for s in done.spread} == {"detect": n, "decide": n, "zero": n, "verified": n}
    page = "\n".join(rehearsal_lines(done.timing, done.spread, 90))
    assert "GREEN. Home was ordered by the judge" in page


def test_a_fault_that_nobody_notices_and_a_verification_that_fails_are_not_green(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    place = Place(world, judge=False)
    run = rehearsal(world, bound, place, tmp_path, Answers(bound, wrong="at-zero"))
    done = drill.rehearse(bound, find_cell(CELL, world.look), run, goal_s=90, watch_s=20)
    t = done.timing
    assert (t.is_ok, t.by, t.detect_s, t.verified_s) == (False, "runbook", None, None)
    assert "nobody noticed" in t.detail
    assert "step at-zero" in t.detail
    kept = world.store.get(Drill, CELL)
    assert kept is not None
    assert not kept.ok
    assert place.said[-1] == "mended"


def test_nothing_is_broken_outside_a_lab_or_without_traffic(tmp_path: Path) -> None:
    assert "no lab is up" in LabBreakable(tmp_path).refuses(CELL)
    for world, name, refusal, code in (
        (World(), "full-fallback", "it serves people", "runbook.not_a_lab"),
        (World(), "quality-drift", "", "runbook.no_fault"),
        (World(weight_bp=0), "full-fallback", "", "runbook.no_traffic"),
    ):
        bound = world.bound(name)
        place = Place(world, judge=False, refusal=refusal)
        with pytest.raises(RunbookFailed) as e:
            drill.rehearse(
                bound, find_cell(CELL, world.look), rehearsal(world, bound, place, tmp_path, Answers(bound)), goal_s=9, watch_s=1
            )
        assert (e.value.code, place.said) == (code, [])
    assert not list(tmp_path.iterdir())


def test_median_and_maximum() -> None:
    base = Timing(
        at=FakeClock().now(), actor=ME, cell=CELL, runbook="x", fault="errors", detect_s=1.0, decide_s=1.0, zero_s=None, verified_s=9.0,
        by="judge", is_ok=True,
    )  # fmt: skip
    found = {s.part: (s.median_s, s.max_s, s.runs) for s in spreads([base, replace(base, detect_s=3.0), replace(base, detect_s=8.0)])}
    assert found["detect"] == (3.0, 8.0, 3)
    assert "zero" not in found


def test_a_live_value_of_every_name_is_there() -> None:
    world = World()
    live = world.bound().live
    names: tuple[LiveName, ...] = ("way_home", "router", "weight", "source", "region_cells", "store", "migration")
    assert tuple(live) == names
    assert all(isinstance(v, LiveValue) and v.is_good for v in live.values())
    line = JournalLine(run="r", digest="d", at=world.clock.now(), actor=ME, step="look", state="done")
    assert line.exit_code is None
