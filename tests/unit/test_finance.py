"""Planned against realised: what adds up, what came home, what is not known; a file that no spreadsheet obeys."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from fleetctl.domain.event import Event
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import CellId
from fleetctl.domain.report import ReportData
from fleetctl.domain.rollout import Ended, Rollout
from fleetctl.usecases.finance import finance
from fleetctl.views.finance import finance_csv
from tests.cases.planning_fleet import ANA, NOW, lab_fleet, plan_of
from tests.fakes.rollouts import rollout
from tests.unit.test_plan_stages import powered

CHAT = CellId("chat-lab")
H = timedelta(hours=1)


def centred(**centres: str) -> Fleet:
    fleet = lab_fleet()
    return replace(fleet, workloads=tuple(replace(w, cost_centre=centres.get(w.id, "")) for w in fleet.workloads))


def data_of(fleet: Fleet, ended: Ended | None = None) -> ReportData:
    """A report six hours after a cell began; two hours until its first customer; `ended` an hour ago."""
    events: tuple[Event, ...] = ()
    looks: tuple[LookRow, ...] = ()
    rollouts: tuple[Rollout, ...] = ()
    if ended is not None:
        events = (
            Event(at=NOW, kind="rollout.start", actor=ANA, text="", cell=CHAT),
            Event(at=NOW + 5 * H, kind="rollout.home", actor=ANA, text="", cell=CHAT),
        )
        looks = tuple(
            LookRow(cell=CHAT, at=NOW + at * H, phase="canary", target_bp=bp, served_bp=bp, arms={}, verdicts=(), why="")
            for at, bp in ((1, 0), (2, 1000))
        )
        rollouts = (replace(rollout(CHAT), ended=ended),)
    return ReportData(made_at=NOW + 6 * H, fleet=fleet, plan=plan_of(fleet), rollouts=rollouts, looks={CHAT: looks}, events=events)


def test_cells_centres_and_what_is_shared_add_up_to_the_bill_of_whole_vms() -> None:
    data = data_of(centred(chat="4711", summary="4711", stream="4712"))
    rows = finance(data)
    assert data.plan is not None
    cells = [r for r in rows if r.row == "cell"]
    sums = {r.cost_centre: r for r in rows if r.row == "cost_centre"}
    shared, fleet = rows[-2:]
    assert {c: s.cells for c, s in sums.items()} == {"4711": 2, "4712": 1, "(none)": 1}
    for name in ("now", "then", "saving", "planned_overlap", "planned_extra"):
        parts = sum((getattr(r.amounts, name) for r in cells), Decimal(0))
        assert parts == sum((getattr(s.amounts, name) for s in sums.values()), Decimal(0))
        assert parts + getattr(shared.amounts, name) == getattr(fleet.amounts, name)
    assert (fleet.amounts.now, fleet.amounts.then) == (data.plan.cost_now.amount, data.plan.cost_then.amount)
    assert fleet.amounts.planned_overlap == data.plan.overlap_cost.amount
    assert all(r.state == "not started" and r.amounts.realised_overlap is None for r in cells)


def test_realised_cost_runs_until_now_while_the_source_is_held() -> None:
    chat = finance(data_of(lab_fleet(), "complete"))[0]
    assert (chat.state, chat.started, chat.ended) == ("complete, source held", NOW, None)
    assert chat.amounts.hours_both == 6
    assert chat.amounts.now is not None
    assert chat.amounts.then is not None
    assert chat.amounts.realised_overlap == ((chat.amounts.now + chat.amounts.then) * 6).quantize(Decimal("0.01"))
    assert chat.amounts.realised_validation == (chat.amounts.then * 2).quantize(Decimal("0.01"))
    assert chat.amounts.realised_saving == 0
    assert chat.amounts.realised_kwh is not None
    assert chat.amounts.realised_kwh > 0


def test_from_its_sources_release_on_a_cell_saves() -> None:
    data = data_of(lab_fleet(), "complete")
    freed = Event(at=NOW + 4 * H, kind="release.done", actor=ANA, text="", data={"pool": "nvidia-lab"})
    chat = finance(replace(data, events=(*data.events, freed)))[0]
    assert (chat.state, chat.ended, chat.amounts.hours_both) == ("complete, source released", NOW + 4 * H, Decimal(4))
    assert chat.amounts.realised_saving == chat.amounts.saving


def test_a_cell_that_came_home_stops_costing_double() -> None:
    chat = finance(data_of(lab_fleet(), "rolled_back"))[0]
    assert (chat.state, chat.ended, chat.amounts.hours_both) == ("rolled back", NOW + 5 * H, Decimal(5))


def test_without_a_plan_there_is_nothing_to_tell() -> None:
    assert finance(replace(data_of(lab_fleet()), plan=None)) == ()


def test_the_file_is_a_table_and_formulas_are_inert() -> None:
    data = data_of(centred(chat='=HYPERLINK("http://x")', summary="+1", stream="@x"), "complete")
    assert data.plan is not None
    text = finance_csv(data.plan, finance(data))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 4 + 4 + 2
    assert {r["plan"] for r in rows} == {data.plan.id}
    assert all(not r["cost_centre"].startswith(("=", "+", "@")) for r in rows)
    assert rows[0]["started_utc"] == "2026-11-30 12:00:00"
    assert float(rows[0]["realised_hours_both_sides"]) == 6.0
    assert rows[-1]["row"] == "fleet"
    assert Decimal(rows[-1]["now_usd_per_hour"]) == data.plan.cost_now.amount
    assert {len(r) for r in csv.reader(io.StringIO(text))} == {30}


def test_a_cell_of_a_later_stage_runs_on_both_sides_from_that_stage_on() -> None:
    fleet = powered(1, cells=2)
    plan = plan_of(fleet)
    assert plan.calendar is not None
    assert [w.stage for w in plan.waves] == [1, 2]
    first, second = plan.calendar.waves
    rows = {r.wave: r for r in finance(ReportData(made_at=NOW, fleet=fleet, plan=plan)) if r.row == "cell"}
    for wave, dates in ((1, first), (2, second)):
        amounts = rows[wave].amounts
        assert amounts.then is not None
        assert amounts.planned_extra is not None
        assert float(amounts.planned_extra) == pytest.approx(float(amounts.then) * ((dates.end - dates.start) / H), abs=0.01)
