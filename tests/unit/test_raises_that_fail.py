"""A raise that a router takes and then calls an error: customers never go to and fro, and a person is told once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleetctl.domain.rollout import Order
from fleetctl.domain.split import Applied, Split, Stale
from fleetctl.errors import TrafficNotApplied
from tests.rollouts import CELL, PERSON
from tests.simulator import Simulation, quick

Fails = Callable[[Split], bool]


def behind(fails: Fails, failing: float = 0.0) -> tuple[Simulation, list[int]]:
    """Return a migration behind a router that sets what it is told, and calls some of it an error."""
    s = Simulation(of=quick(), failing=failing)
    s.begin()
    real, asked = s._writer.set, list[int]()

    def set_(wanted: Split) -> Applied | Stale:
        done = real(wanted)
        if isinstance(done, Applied):
            asked.append(wanted.target_bp)
            if fails(wanted):
                raise TrafficNotApplied("traffic.not_shown", "router edge shows another weight: somebody else writes there too.")
        return done

    object.__setattr__(s._writer, "set", set_)
    return s, asked


@pytest.mark.parametrize("failing", [0.0, 1.0])
@pytest.mark.parametrize("fails", [lambda s: True, lambda s: s.target_bp > 0], ids=["every word", "raises"])
def test_a_raise_that_is_not_shown_is_set_back_and_never_tried_again(fails: Fails, failing: float) -> None:
    s, asked = behind(fails, failing)
    on = 0
    for _ in range(120):
        s.serve(0.5)
        on += s.bp() > 0
        s.tick_once()
    assert [bp for bp in asked if bp] == [1_000]
    assert s.bp() == 0
    assert on <= 4, "of 120 looks"
    assert "shows another weight" in s.rollout().foreign
    assert [n.text for n in s.notices.sent if n.kind == "notify.page"] == [
        f"{CELL}: router edge shows another weight: somebody else writes there too."
    ]


def test_a_person_resumes_it_and_it_goes_on() -> None:
    broken = [True]
    s, asked = behind(lambda split: broken[0] and split.target_bp > 0)
    s.run(20)
    assert (asked, s.bp()) == ([1_000, 0], 0)
    broken.clear()
    broken.append(False)
    s.store.order(CELL, Order(kind="resume", actor=PERSON, at=s.clock.now()))
    s.look_now()
    s.run(20, lambda: s.rollout().settled_at is not None and s.bp() == 1_000)
    assert (s.bp(), s.rollout().foreign) == (1_000, "")


def test_a_router_that_does_not_answer_for_a_while_is_tried_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Simulation(of=quick())
    s.begin()
    real, refuse = s._writer.set, [3]

    def set_(wanted: Split) -> Applied | Stale:
        if refuse[0]:
            refuse[0] -= 1
            raise TrafficNotApplied("traffic.router_down", "no answer")
        return real(wanted)

    monkeypatch.setattr(s._writer, "set", set_)
    s.run(30, lambda: s.bp() == 1_000)
    assert (s.bp(), s.rollout().foreign) == (1_000, "")
