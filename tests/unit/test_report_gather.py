"""Gathering a report from the store: every chain once, by time, with its head."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.usecases.report import gather
from fleetctl.views.report import render_report
from tests.cases.planning_fleet import lab_fleet, plan_of
from tests.fakes.clock import FakeClock
from tests.fakes.rollouts import CHAT, event, keep_look, look, rollout
from tests.fakes.store import MemoryStore


def test_everything_is_gathered_and_can_be_rendered() -> None:
    clock = FakeClock()
    store = MemoryStore(clock.now)
    fleet = lab_fleet()
    plan = plan_of(fleet)
    store.put(plan.id, plan)
    store.start(rollout(), (event(text="begins"), event(text="goes on")))
    store.append((replace(event(cell=None), text="plan made"),))
    keep_look(store, look(seconds=0))
    keep_look(store, look(seconds=1, kind="PASS"))
    data = gather(fleet, store, store, store, clock, (("haproxy", "real", "router"),))
    assert data.plan == plan
    assert [r.cell for r in data.rollouts] == [CHAT]
    assert len(data.looks[CHAT]) == 2
    assert [(c.cell, c.events, c.broken) for c in data.chains] == [(None, 1, ""), (CHAT, 2, "")]
    assert data.chains[1].head == [e for e in data.events if e.cell == CHAT][-1].hash
    assert "begins" in render_report(data)
