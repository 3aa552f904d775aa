"""Runbooks: stepping through, resuming after a kill, what is refused, and the command line."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fleetctl.adapters.home.files import WayHomeFiles, make_key
from fleetctl.adapters.runbooks import JournalFile, OwnCommands, RehearsalFile
from fleetctl.cli.commands.fallback import _code, _home, _line
from fleetctl.cli.main import cli
from fleetctl.domain.fleet import Connection
from fleetctl.domain.ids import CellId
from fleetctl.domain.runbook import Timing
from fleetctl.errors import FleetctlError, LeaseHeld, RunbookFailed
from fleetctl.ports.runbook import Ended
from fleetctl.usecases.home import fallback
from fleetctl.usecases.runbook import END, look, unexpected, walk
from fleetctl.views.runbook import live_lines
from tests.fakes.clock import START
from tests.fakes.runbook import CELL, Answers, World, ports, way
from tests.rollouts import PERSON

ROOT = Path(__file__).resolve().parents[2]


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
    again = walk(bound, ports(world, bound, Answers(bound), tmp_path))
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


@pytest.mark.parametrize("name", ["full-fallback", "errors", "spot-eviction"])
@pytest.mark.parametrize("weight_bp", [0, 1_000])
def test_a_run_that_was_left_open_goes_home_again_where_customers_are_on_the_target_again(
    tmp_path: Path, name: str, weight_bp: int
) -> None:
    world = World()
    bound = world.bound(name)
    steps = [s.id for s in bound.runbook.all_steps if s.command]
    with pytest.raises(KeyboardInterrupt):
        walk(bound, ports(world, bound, Answers(bound, dies_at="at-zero"), tmp_path))
    world.weight(weight_bp)
    bound = world.bound(name)
    commands, told = Answers(bound), list[str]()
    if not weight_bp:
        commands.passed = set(steps[: steps.index("at-zero")])
    end = walk(bound, replace(ports(world, bound, commands, tmp_path), warn=told.append))
    assert end.resumed == (weight_bp == 0)
    assert ("go-home" in commands.ran) == (weight_bp > 0), "what went home before is no way home of today"
    assert ["it begins anew" in told[0], "goes on with the run" in told[0]] == [weight_bp > 0, weight_bp == 0]


KILLED = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from fleetctl.adapters.runbooks import JournalFile
from fleetctl.usecases.runbook import walk
from tests.fakes.runbook import Answers, World, ports

def child(folder, moment, at):
    world = World(); bound = world.bound(); commands = Answers(bound); p = ports(world, bound, commands, folder)
    told = [0]
    def killed():
        told[0] += 1
        if told[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)
    append, run = p.journal.append, commands.run
    def kills_before(line): killed(); append(line)
    def kills_after(line): append(line); killed()
    def kills_in(words, limit_s):
        ended = run(words, limit_s); killed(); return ended
    if moment == "command":
        commands.run = kills_in
    else:
        p.journal.append = {"before": kills_before, "after": kills_after}[moment]
    walk(bound, p)

World().bound()  # read once, before the forks
for moment in ("before", "after", "command"):
    for at in range(1, 40):
        folder = Path(sys.argv[1]) / f"{moment}-{at}"
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            child(folder, moment, at)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        world = World()
        before = [(x.step, x.state) for x in JournalFile(folder, world.cell, "full-fallback").lines()]
        if ("go-home", "done") in before:
            world.weight(0)
        bound = world.bound(); commands = Answers(bound)
        commands.passed = {s for s, state in before if state == "done"} if ("end", "done") not in before else set()
        resumed = walk(bound, ports(world, bound, commands, folder)).resumed if code == -9 else None
        after = [(x.step, x.state) for x in JournalFile(folder, world.cell, bound.runbook.id).lines()]
        print(json.dumps([moment, at, code, before, resumed, commands.ran, after]))
        if code == 0:
            break
"""
"""Kills a real process before and after each line of its journal and after each command, and steps on from what it left."""


def test_killed_at_every_step_boundary_it_goes_on_where_it_was(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(ROOT)], capture_output=True, check=True, timeout=120, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    book = World().bound().runbook
    steps = [s.id for s in book.all_steps]
    killed = [r for r in rows if r[2] == -9]
    lines = 2 * len(steps)  # begun and done of each; a choice is one line, skipped; the end is one
    assert {m: sum(1 for r in killed if r[0] == m) for m in ("before", "after", "command")} == {
        "before": lines, "after": lines, "command": len(steps) - 1,
    }  # fmt: skip
    for moment, at, _, before, resumed, ran, after in killed:
        finished = [s for s, state in before if state in ("done", "skipped")]
        was_over = END in finished
        assert resumed == (bool(before) and not was_over), (moment, at)
        assert not set(ran) & set(finished) or was_over, (moment, at, "a step that was done is not done again")
        last = dict(after)
        assert {last[s] for s in steps} <= {"done", "skipped"}, (moment, at)
        assert after[-1] == [END, "done"]
        if not was_over:
            assert [s for s, state in after if state in ("done", "skipped")] == [*steps, END], (moment, at, "each is done once, in order")


def test_a_step_that_is_not_as_expected_stops_the_run_and_is_done_again(tmp_path: Path) -> None:
    world = World()
    bound = world.bound()
    with pytest.raises(RunbookFailed, match="it ended with 1, not 0") as e:
        walk(bound, ports(world, bound, Answers(bound, wrong="go-home"), tmp_path))
    assert e.value.code == "runbook.unexpected"
    assert "run the same command again" in e.value.hint
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
    changed = replace(bound, runbook=replace(bound.runbook, steps=(replace(first, command=(*first.command, "-v")), *others)))
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


@pytest.mark.parametrize("lacks", ["space", "a folder"])
def test_a_journal_that_cannot_be_written_keeps_nobody_from_home(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, folder = os.open, tmp_path / "journals"

    def full(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if str(path).startswith(str(folder)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, flags, mode)

    if lacks == "space":
        monkeypatch.setattr(os, "open", full)
    else:
        folder.write_text("in the way")
    world, warned = World(), list[str]()
    bound = world.bound()
    commands = Answers(bound)
    walk(bound, replace(ports(world, bound, commands, folder), warn=warned.append))
    assert commands.ran == ["look", "go-home", "reconcile", "at-zero", "nothing-moves"]
    assert len(warned) == 1
    assert "The run goes on" in warned[0]


def test_a_line_of_rubbish_among_rehearsals_hides_no_other(tmp_path: Path) -> None:
    kept = RehearsalFile(tmp_path)
    took = {"detect_s": 1.0, "decide_s": 2.0, "zero_s": 2.1, "verified_s": 3.0}
    timing = Timing(at=START, actor=PERSON, cell=CELL, runbook="errors", fault="errors", **took, by="judge", is_ok=True)  # type: ignore[arg-type]
    kept.add(timing)
    with (tmp_path / "rehearsals.jsonl").open("ab") as f:
        f.write(b"rubbish\n")
    kept.add(timing)
    assert kept.all() == (timing, timing)


@pytest.mark.parametrize("name", ["../x", "a b", "-x", ""])
def test_a_journal_never_leaves_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        JournalFile(tmp_path, CellId(name), "full-fallback")


def test_what_is_expected() -> None:
    step = World().bound().runbook.steps[1]
    assert unexpected(step, Ended(exit_code=None, output="", seconds=90.0)) == "it did not end within 90 s and was stopped"
    assert "ended with 1" in unexpected(step, Ended(exit_code=1, output="", seconds=1.0))
    assert "not what is expected" in unexpected(step, Ended(exit_code=0, output="cell/other home: 1 of 1 home", seconds=1.0))


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


class Half:
    """Commands that really look and go home, in memory, as the program prints them."""

    def __init__(self, world: World) -> None:
        self.world = world

    def run(self, words: Sequence[str], limit_s: float) -> Ended:
        w = self.world
        if words[0] == "fallback":
            results = fallback((way(),), w.look.home, PERSON)
            lines = (*map(_line, results), f"{_home(results)} of {len(results)} home; slowest to zero: 1 ms")
            return Ended(exit_code=_code(results), output="\n".join(lines) + "\n", seconds=60.0)
        if words[:2] == ("runbook", "show"):
            return Ended(exit_code=0, output="\n".join(live_lines(look(CELL, way(), w.look))) + "\n", seconds=0.5)
        said = {"pause": f"cell/{CELL} paused\n", "inventory": "workload chat\n", "audit": f"{CELL} rollout.hold\n"}
        return Ended(exit_code=0, output=said[words[0]], seconds=0.5)


@pytest.mark.parametrize(("ready", "stays_bp"), [(1, 5_000), (2, 0)])
def test_a_way_home_in_part_is_what_its_runbook_is_for(tmp_path: Path, ready: int, stays_bp: int) -> None:
    world = World(weight_bp=9_500)
    world.prober.ready_now = ready
    bound = world.bound("partial-fallback")
    end = walk(bound, replace(ports(world, bound, Answers(bound), tmp_path), commands=Half(world)))
    assert world.router.read(CELL).target_bp == stays_bp
    assert (end.lines[-1].step, end.lines[-1].state) == (END, "done")


def test_a_partial_way_home_is_not_verified_while_more_could_go(tmp_path: Path) -> None:
    world = World(weight_bp=9_500)
    world.prober.ready_now = 1
    bound = world.bound("partial-fallback")
    (step,) = bound.runbook.verification
    commands = Half(world)
    assert unexpected(step, commands.run(step.command[1:], 60.0)) != ""
    commands.run(("fallback", CELL), 60.0)
    assert unexpected(step, commands.run(step.command[1:], 60.0)) == ""
    world.prober.ready_now = 0
    assert unexpected(step, commands.run(step.command[1:], 60.0)) != "", "a source that answers no more verifies nothing"


@pytest.mark.parametrize("name", ["errors", "full-fallback"])
@pytest.mark.parametrize("ready", [0, 1])
def test_a_way_home_that_stops_short_is_never_told_to_begin_the_migration_again(tmp_path: Path, name: str, ready: int) -> None:
    world = World(weight_bp=9_500)
    bound = world.bound(name)
    world.prober.ready_now = ready
    (step,) = (s for s in bound.runbook.steps if s.id == "go-home")
    made = replace(bound, runbook=replace(bound.runbook, steps=(step,)))
    with pytest.raises(RunbookFailed, match="step go-home") as e:
        walk(made, replace(ports(world, made, Answers(made), tmp_path), commands=Half(world)))
    assert "retry" not in e.value.hint
    assert ("partial-fallback" in e.value.hint) == (ready == 1)
    assert "run the same command again" in e.value.hint
