"""The end of a pool's machines is told ahead: in `status` at any time, by a page 24 h and 1 h before it, once each."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from fleetctl.cli.commands import status
from fleetctl.cli.commands.status import next_of
from fleetctl.domain.evidence import LookRow
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Notify
from fleetctl.rollout import deadlines
from fleetctl.rollout.deadlines import ENDS, with_deadlines
from fleetctl.rollout.decide import decide
from tests.rollouts import CELL, T0, rollout, seeing
from tests.simulator import SOURCE, TARGET, Simulation, quick, tiny
from tests.unit.test_status_held import _row as row

H = timedelta(hours=1)


def signal(pool: PoolId, left: timedelta, severity: str = "warning", kind: str = "aws.block_end") -> Signal:
    return Signal(subject=HostId("h-1"), kind=kind, severity=severity, seen_at=T0, deadline=T0 + left, pool=pool)  # type: ignore[arg-type]


def pages(left_h: float, told: tuple[str, ...] = (), severity: str = "warning") -> tuple[list[str], tuple[str, ...], str]:
    r = replace(rollout(), ends_told=told)
    seen = replace(seeing(T0, 0), signals=(signal(r.spec.source, left_h * H, severity),))
    plain = decide(r, replace(seen, signals=()), T0)
    done = with_deadlines(plain, seen, T0)
    more = [e.text for e in done.effects if e not in plain.effects and isinstance(e, Notify) and e.level == "page"]
    return more, done.next.ends_told, done.why.text


def test_pages_come_24_hours_and_one_hour_before_and_once_each() -> None:
    assert pages(100)[0] == []
    assert "source ends in 4 days" in pages(100)[2]
    first, told, _ = pages(23.5)
    assert len(first) == 1
    assert "source ends in 24 h" in first[0]
    assert pages(23.5, told)[0] == []
    last, told, _ = pages(0.9, pages(23.5)[1])
    assert len(last) == 1
    assert "ends in 54 min" in last[0]
    both, told, _ = pages(0.9)
    assert len(both) == 1, "one page, though both times have come"
    assert pages(0.9, told)[0] == []


def test_one_that_takes_a_machine_now_has_its_own_page_and_a_past_one_none() -> None:
    assert pages(0.02, severity="critical")[0] == []
    assert pages(-1)[0] == []
    assert ENDS not in pages(-1)[2]


def test_status_shows_the_end_beside_what_a_cell_waits_for() -> None:
    assert status.ENDS == deadlines.ENDS
    s = Simulation(of=quick())
    s.signals.given = {
        SOURCE: [Signal(subject="h-1", kind="aws.block_end", severity="warning", seen_at=T0, deadline=s.clock.now() + 30 * H, pool=SOURCE)]
    }
    s.begin()
    s.run(10, lambda: False)
    look = s.results[-1].why
    assert "source ends in 30 h" in look
    assert s.rollout().ends_told == ()
    s.clock.advance(7 * H)
    s.look_now()
    s.run(5, lambda: False)
    assert [n.kind for n in s.notices.sent if ENDS in n.text] == ["notify.page"]


def the_end(s: Simulation) -> tuple[Signal, datetime]:
    assert s.signals.given is not None
    (end,) = s.signals.given[TARGET]
    assert end.deadline is not None
    return end, end.deadline


def finished(left: timedelta) -> Simulation:
    """Return a cell that is complete, whose target is told only now to end."""
    s = Simulation(of=tiny())
    s.signals.given = {}
    s.begin()
    s.run(400, lambda: s.rollout().ended == "complete")
    assert s.rollout().ended == "complete"
    end = Signal(subject="h-1", kind="aws.block_end", severity="warning", seen_at=T0, deadline=s.clock.now() + left, pool=TARGET)
    s.signals.given = {TARGET: [end]}
    return s


def told(s: Simulation) -> list[str]:
    return [n.text for n in s.notices.sent if n.kind == "notify.page" and ENDS in n.text]


def looks(s: Simulation) -> list[LookRow]:
    return [*s.store.rows(CELL, None)]


def shown(s: Simulation) -> str:
    """Return what status says of the cell, from the last look that was kept."""
    look = next(x for x in reversed(looks(s)) if x.why)
    return next_of(row("", "complete")._replace(look=look.why))


def test_the_end_of_a_finished_cells_target_is_in_status_at_once_and_people_are_paged_24_hours_and_one_hour_before() -> None:
    s = finished(100 * H)
    for _ in range(3):
        s.look_now()
        s.tick_once()
    assert (s.rollout().ended, told(s)) == ("complete", [])
    assert shown(s).startswith("target ends 2")
    assert shown(s).endswith("UTC (aws.block_end of h-1)")
    for left, n in ((30.0, 0), (23.5, 1), (20.0, 1), (0.9, 2), (0.5, 2)):
        s.clock.advance(the_end(s)[1] - left * H - s.clock.now())
        for _ in range(3):
            s.look_now()
            s.tick_once()
        assert len(told(s)) == n, (left, told(s))
    assert (s.rollout().ended, s.bp()) == ("complete", 10_000)


def test_an_end_that_was_moved_or_called_off_is_not_shown_any_more() -> None:
    s = finished(100 * H)
    s.look_now()
    s.tick_once()
    first = shown(s)
    end, at = the_end(s)
    s.signals.given = {TARGET: [replace(end, deadline=at + 48 * H)]}
    s.look_now()
    s.tick_once()
    assert shown(s) not in ("", first)
    s.signals.given = {}
    s.look_now()
    s.tick_once()
    assert shown(s) == ""
    assert told(s) == []
    before = len(looks(s))
    s.look_now()
    s.tick_once()
    assert len(looks(s)) == before, "a finished cell of which nothing is new is left alone"
