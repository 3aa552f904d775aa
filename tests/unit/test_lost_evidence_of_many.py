"""Evidence lost in many cells at once: one goes home, many hold, and one page is sent for all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.judge import fresh
from fleetctl.domain.ids import CellId, PlanId
from fleetctl.domain.rollout import Rollout
from tests.rollouts import cursor, spec
from tests.simulator import Simulation


def lost(n: int) -> Simulation:
    """Return n cells in mid-ramp whose common source of evidence goes away, 130 s later."""
    s = Simulation(tuple(CellId(f"cell-{i}") for i in range(n)), rate_per_s=0)
    now = s.clock.now()
    step = next(i for i, p in enumerate(spec().phases) if p.phase == "ramp")
    for c in s.cells:
        s.target.splits[c] = replace(s.target.splits[c], target_bp=5_000, cap_bp=10_000, lease_until=now + timedelta(hours=1))
        r = Rollout(cell=c, plan=PlanId("p1"), spec=spec(), judge=fresh(), until="complete", step=step, weight_bp=5_000)
        s.store.start(replace(r, settled_at=now, since=cursor(now)), ())
    s.evidence.down = True
    silent(s, 130)
    return s


def silent(s: Simulation, seconds: int) -> None:
    for _ in range(seconds // 5):
        s.clock.advance(timedelta(seconds=5))
        s.tick_once()


def pages(s: Simulation) -> list[str]:
    return [e.text for e in s.notices.sent if e.kind == "notify.page"]


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_cells_go_home_after_120_s(n: int) -> None:
    s = lost(n)
    assert [(s.rollout(c).ended, s.bp(c)) for c in s.cells] == [("lost_evidence", 0)] * n


@pytest.mark.parametrize(("n", "seconds"), [(3, 130), (40, 600)])
def test_three_or_more_hold_and_one_page_is_sent_for_all(n: int, seconds: int) -> None:
    """40 cells for 10 minutes: 0 rollbacks, 0 promotes, 1 page."""
    s = lost(n)
    silent(s, seconds - 130)
    assert {(s.rollout(c).ended, s.bp(c), s.rollout(c).hold_reason) for c in s.cells} == {("", 5_000, "evidence.provider")}
    assert len(pages(s)) == 1
    assert f"{3} cells" in pages(s)[0] or f"{n} cells" in pages(s)[0]
    assert [e.kind for c in s.cells for e in s.store.events(c, 0) if e.kind == "rollout.hold"], "every cell's own chain tells of it"


def test_a_second_outage_pages_again() -> None:
    s = lost(3)
    assert len(pages(s)) == 1
    s.evidence.down = False
    s.rate_per_s = 40
    s.run(4)
    assert {s.rollout(c).hold_reason for c in s.cells} != {"evidence.provider"}
    s.evidence.down = True
    silent(s, 60)
    assert len(pages(s)) == 2
