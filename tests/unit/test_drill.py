"""Rehearsals of runbooks: where something may be broken, what is timed, and what the release gate reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.runbooks import RehearsalFile
from fleetctl.domain.event import Event
from fleetctl.domain.ids import CellId
from fleetctl.domain.people import Actor
from fleetctl.domain.provision import Drill
from fleetctl.domain.runbook import Bound, Fault, JournalLine, LiveName, Timing, spreads
from fleetctl.errors import RunbookFailed
from fleetctl.lab.breakable import LabBreakable
from fleetctl.usecases import drill
from fleetctl.usecases.runbook import find_cell
from fleetctl.views.runbook import rehearsal_lines
from tests.fakes.clock import FakeClock
from tests.fakes.runbook import CELL, ME, Answers, World, ports

ROOT = Path(__file__).resolve().parents[2]


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
        assert "GREEN. Home was ordered by the judge" in "\n".join(rehearsal_lines(t, done.spread, 90))


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
    assert all(v.is_good for v in live.values())
    line = JournalLine(run="r", digest="d", at=world.clock.now(), actor=ME, step="look", state="done")
    assert line.exit_code is None
