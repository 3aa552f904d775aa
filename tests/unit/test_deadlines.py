"""The end of a pool's machines is told ahead: in `status` at any time, by a page 24 h and 1 h before it, once each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fleetctl.cli.commands import status
from fleetctl.domain.ids import HostId, PoolId
from fleetctl.domain.people import Signal
from fleetctl.domain.rollout import Notify
from fleetctl.rollout import deadlines
from fleetctl.rollout.deadlines import ENDS, with_deadlines
from fleetctl.rollout.decide import decide
from tests.rollouts import T0, rollout, seeing
from tests.simulator import SOURCE, Simulation, quick

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
