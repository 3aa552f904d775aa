"""Rehearsals of runbooks: where something may be broken, what is timed, and what the release gate reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.runbooks import RehearsalFile
from fleetctl.adapters.runbooks.marked import MarkedBreakable
from fleetctl.domain.event import Event
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import Bound, Fault, JournalLine, LiveName, Step, Timing, spreads, touched
from fleetctl.domain.workload import Breakage
from fleetctl.errors import RunbookFailed
from fleetctl.formats.runbook_file import ORDER
from fleetctl.lab.breakable import LabBreakable
from fleetctl.usecases import drill, drills
from fleetctl.usecases.runbook import find_cell
from fleetctl.views.game_day import game_day_lines, game_day_page
from tests.fakes.clock import FakeClock
from tests.fakes.runbook import CELL, ME, Answers, World, ports, way

ROOT = Path(__file__).resolve().parents[2]


class Place:
    """Where things may be broken: the judge of this world takes the cell home or holds it, or nobody notices."""

    def __init__(self, world: World, *, judge: bool, refusal: str = "") -> None:
        self.world, self.judge, self.refusal = world, judge, refusal
        self.said: list[str] = []
        self.serving: tuple[str, ...] = ()

    def refuses(self, c: CellId) -> str:
        return "it serves people" if c in self.serving else self.refusal

    def inject(self, c: CellId, fault: Fault) -> None:
        self.said.append(fault.kind)
        if fault.kind == "router_gone":
            self.world.router.target.down = True
        elif self.judge and fault.kind == "evidence_gone":
            self.world.clock.advance(timedelta(seconds=7))
            actor = Actor(kind="judge", name="judge", via="timer")
            self.world.store.append((Event(at=self.world.clock.now(), kind="rollout.hold", actor=actor, text="blind", cell=c),))
        elif self.judge:
            self.world.clock.advance(timedelta(seconds=4))
            actor = Actor(kind="judge", name="judge", via="timer")
            self.world.store.append((Event(at=self.world.clock.now(), kind="verdict.fail", actor=actor, text="errors", cell=c),))
            self.world.weight(0)

    def mend(self, c: CellId) -> None:
        self.said.append("mended")
        self.world.router.target.down = False


def rehearsal(world: World, bound: Bound, place: Place, folder: Path, commands: Answers) -> drill.DrillPorts:
    return drill.DrillPorts(
        place=place,
        look=world.look,
        run=ports(world, bound, commands, folder),
        events=lambda: tuple(world.store.events(CELL, 0)),
        rehearsals=RehearsalFile(folder),
        keep=lambda d: drills.keep(d, world.store, world.store),
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
        lines = game_day_lines([done], 90)
        assert "GREEN. Home was ordered by the judge" in "\n".join(lines)
        assert max(map(len, game_day_lines([done, done], 90))) <= 80
        assert "2 of 2 rehearsals are green" in game_day_lines([done, done], 90)
        assert drills.newest(world.store, world.store)[CELL] == kept


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
    assert "no lab is up" in LabBreakable(tmp_path, tmp_path / "store.db").refuses(CELL)
    for world, name, refusal, code in (
        (World(), "full-fallback", "it serves people", "runbook.not_a_lab"),
        (World(), "key-expired", "", "runbook.no_fault"),
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


def test_a_runbook_that_would_change_a_cell_that_may_not_be_broken_is_refused(tmp_path: Path) -> None:
    world = World(way(), way("sales", "eastus2"), replace(way("chat-east-eu"), part_of=(CELL, "chat")))
    place = Place(world, judge=True)
    for refused, books in ((("sales",), {"full-fallback", "one-region", "store-down"}), ((), set[str]())):
        place.serving = refused
        found: dict[str, str] = {}
        for name in ORDER:
            bound = world.bound(name)
            if bound.runbook.fault is None:
                continue
            try:
                drill.refuse(bound, find_cell(CELL, world.look), rehearsal(world, bound, place, tmp_path, Answers(bound)))
            except RunbookFailed as e:
                found[name] = e.code
        assert found == dict.fromkeys(books, "runbook.not_alone")
    place.serving = ("sales",)
    bound = world.bound("full-fallback")
    commands = Answers(bound)
    with pytest.raises(RunbookFailed, match="go-home of full-fallback changes sales"):
        drill.rehearse(bound, find_cell(CELL, world.look), rehearsal(world, bound, place, tmp_path, commands), goal_s=9, watch_s=1)
    assert (place.said, commands.ran) == ([], [])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("fallback --all", None),
        ("fallback --region eu", None),
        ("fallback --reconcile", None),
        ("fallback", None),
        ("fallback a b --unproven", ("a", "b")),
        ("fallback --all --dry-run", ()),
        ("pause a --reason b", ("a",)),
        ("runbook run a full-fallback", None),
        ("provision", None),
        ("audit list a", ()),
    ],
)
def test_what_a_step_may_change(words: str, names: tuple[str, ...] | None) -> None:
    assert touched(Step(id="x", text="x", budget_s=1, undo="", command=("fleetctl", *words.split()))) == names


@pytest.mark.parametrize(("name", "seen"), [("router-down", 0.0), ("metrics-down", 7.0)])
def test_what_is_mended_in_place_is_green_once_noticed_and_verified_and_proves_no_way_home(tmp_path: Path, name: str, seen: float) -> None:
    world = World()
    bound = world.bound(name)
    place = Place(world, judge=True)
    commands = Answers(bound, live=lambda: world.bound(name).live)
    done = drill.rehearse(bound, find_cell(CELL, world.look), rehearsal(world, bound, place, tmp_path, commands), goal_s=90, watch_s=60)
    t = done.timing
    assert (t.is_ok, t.detect_s, t.zero_s, t.detail) == (True, seen, None, "")
    assert place.said[:2] == [bound.runbook.fault.kind, "mended"]  # type: ignore[union-attr]
    assert world.store.get(Drill, CELL) is None
    assert "Mended in place" in "\n".join(game_day_lines([done], 90))


def test_a_weight_that_rose_meanwhile_is_not_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    bound = world.bound("metrics-down")
    place = Place(world, judge=True)
    monkeypatch.setattr(place, "mend", lambda c: world.weight(9_000))
    run = rehearsal(world, bound, place, tmp_path, Answers(bound))
    done = drill.rehearse(bound, find_cell(CELL, world.look), run, goal_s=90, watch_s=60)
    assert (done.timing.is_ok, done.timing.detail) == (False, "the weight rose from 50 to 90 %")


def test_what_only_people_notice_is_not_waited_for(tmp_path: Path) -> None:
    world = World()
    bound = world.bound("quality-drift")
    commands = Answers(bound, home=lambda: world.weight(0))
    run = rehearsal(world, bound, Place(world, judge=False), tmp_path, commands)
    t = drill.rehearse(bound, find_cell(CELL, world.look), run, goal_s=90, watch_s=60).timing
    assert (t.is_ok, t.detect_s, t.by) == (True, None, "runbook")


def test_a_marked_workload_is_broken_by_its_owners_words_and_any_other_is_refused(tmp_path: Path) -> None:
    mark = Breakage(inject=("sh", "-c", 'printf %s "$0" > broken', "{fault}; touch evil"), mend=("rm", "-f", "broken"))
    place = MarkedBreakable({CELL: mark}.get, tmp_path)
    assert "not marked" in place.refuses(CellId("other"))
    with pytest.raises(RunbookFailed, match="not marked"):
        place.inject(CellId("other"), Fault(kind="errors"))
    assert place.refuses(CELL) == ""
    place.inject(CELL, Fault(kind="errors"))
    assert (tmp_path / "broken").read_text() == "errors; touch evil", "words stay words"
    assert not (tmp_path / "evil").exists()
    place.mend(CELL)
    place.mend(CELL)
    assert not (tmp_path / "broken").exists()
    with pytest.raises(RunbookFailed, match="break more than the workload"):
        place.inject(CELL, Fault(kind="store_gone"))
    for words, said in ((("false",), "ended with 1"), (("/no/such",), "cannot be run")):
        with pytest.raises(RunbookFailed, match=said):
            MarkedBreakable({CELL: replace(mark, inject=words)}.get, tmp_path).inject(CELL, Fault(kind="errors"))


def test_a_report_to_print_holds_no_markup_of_others() -> None:
    base = Timing(
        at=FakeClock().now(), actor=Actor(kind="person", name="<script>alert(1)</script>"), cell=CELL, runbook="errors", fault="errors",
        detect_s=1.0, decide_s=1.0, zero_s=2.0, verified_s=9.0, by="judge", is_ok=False, detail="<img src=x>\x1b[2J",
    )  # fmt: skip
    page = game_day_page([drill.Rehearsed(timing=base, spread=spreads([base]))], 90)
    assert "<script" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    assert "http" not in page.replace("http-equiv", "")


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
    assert all(v.is_good for v in live.values())
    line = JournalLine(run="r", digest="d", at=world.clock.now(), actor=ME, step="look", state="done")
    assert line.exit_code is None
