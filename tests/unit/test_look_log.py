"""The look log holds all that the judge needs: replaying it, from the rows as they are stored, gives the identical state and verdicts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from fleetctl.analysis.looks import replay
from fleetctl.domain.canonical import canonical, decode
from fleetctl.domain.evidence import JudgeState, LookRow
from fleetctl.errors import UsageError
from fleetctl.usecases.audit import check_looks
from fleetctl.usecases.tick import TickResult
from fleetctl.views.audit import render_looks
from tests.simulator import Simulation, quick, tiny
from tests.unit.test_identity_rollout import ONE, TellingSimulation


class Watched(TellingSimulation):
    """A simulation that keeps the judge's state after every look."""

    def __init__(self, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        self.states: list[JudgeState] = []
        self.ports()

    def tick_once(self, holder: str = "a", ports: object = None) -> list[TickResult]:
        done = super().tick_once(holder)
        self.states += [r.rollout.judge for r in done if r.look is not None and r.look.seen is not None and r.rollout is not None]
        return done

    def rows(self) -> list[LookRow]:
        """The looks as a store gives them back."""
        return [decode(LookRow, canonical(row)) for row in self.store.rows(self.cells[0], None)]


def replayed_as_it_was(s: Watched) -> int:
    """Hold the replay of all looks against what was; returns how many looks there were."""
    found = list(replay(s.rows()))
    assert [r.state for r in found] == s.states
    assert [r.row.at for r in found if not r.agrees] == []
    return len(found)


def test_a_whole_migration_is_replayed_from_its_looks() -> None:
    s = Watched(of=quick())
    s.begin()
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"
    assert replayed_as_it_was(s) > 30
    assert sum(1 for r in s.rows() if r.seen is not None and r.seen.cursor is not None) == 5, "once per step with customers"


@pytest.mark.parametrize(("slower", "failing", "guardrail"), [(1.6, 0.0, "latency"), (1.0, 0.04, "errors"), (1.0, 0.6, "breaker")])
def test_a_fail_is_replayed_to_the_last_digit(slower: float, failing: float, guardrail: str) -> None:
    s = Watched(of=quick())
    s.begin()
    s.at("canary")
    s.slower, s.failing = slower, failing
    s.run(300, lambda: bool(s.rollout().ended))
    latched = s.rollout().latched
    assert latched is not None
    assert latched.guardrail == guardrail
    replayed_as_it_was(s)
    last = list(replay(s.rows()))[-1].verdicts
    assert latched in last


def test_outages_other_arms_and_both_arms_failing_are_replayed_too() -> None:
    s = Watched(of=quick(lost_evidence_home=timedelta(hours=1)))
    s.begin()
    s.at("canary")
    s.source_failing = s.failing = 0.5
    s.run(8)
    s.source_failing = s.failing = 0.0
    s.told.canary = replace(ONE, weights="w2")
    s.run(5)
    s.told.canary = ONE
    s.evidence.down = True
    s.run(5)
    s.evidence.down = False
    s.rate_per_s = 0.0
    s.run(20)
    s.rate_per_s = 150.0
    s.run(20)
    assert not s.rollout().ended
    kinds = {v.kind for r in s.rows() for v in r.verdicts}
    assert {"INCONCLUSIVE", "NO_DATA"} <= kinds
    assert any(r.seen is not None and not r.seen.compared for r in s.rows())
    assert replayed_as_it_was(s) > 20


def test_a_second_attempt_begins_afresh_in_the_same_log() -> None:
    s = Watched(of=tiny(), slower=3.0)
    s.begin()
    s.run(200, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "rolled_back"
    s.slower, s._due = 1.0, dict.fromkeys(s.cells, s.clock.now())
    s.begin()
    s.run(200, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"
    assert sum(1 for r in s.rows() if r.seen is not None and r.seen.steps) == 2
    replayed_as_it_was(s)


def test_without_the_beginning_nothing_is_said() -> None:
    s = Watched(of=tiny())
    s.begin()
    s.at("ramp").run(4)
    rows = [r for r in s.rows() if r.seen is not None]
    with pytest.raises(ValueError, match="are gone"):
        list(replay(rows[1:]))


def test_a_row_that_was_changed_does_not_agree() -> None:
    s = Watched(of=tiny())
    s.begin()
    s.at("ramp").run(6)
    rows = [r for r in s.rows() if r.seen is not None]
    forged = replace(rows[2], arms={**rows[2].arms, "canary": replace(rows[2].arms["canary"], errors=rows[2].arms["canary"].errors + 1)})
    assert not all(r.agrees for r in replay([*rows[:2], forged, *rows[3:]]))


def test_a_simulation_without_watching_stores_the_same() -> None:
    s = Simulation(of=tiny())
    s.begin()
    s.at("ramp").run(3)
    assert all((row.seen is None) == (not row.verdicts) for row in s.store.rows(s.cells[0], None) if row.phase == "ramp")


def test_a_person_can_have_every_verdict_computed_again() -> None:
    s = Watched(of=quick(), slower=1.4)
    s.begin()
    s.run(200, lambda: bool(s.rollout().ended))
    found = check_looks(s.cells[0], s.rows())
    assert found.same == found.looks >= 2
    assert "every verdict comes out as it was" in render_looks(found)
    rows = s.rows()
    bad = next(i for i, r in enumerate(rows) if r.verdicts and r.verdicts[0].kind == "FAIL")
    rows[bad] = replace(rows[bad], verdicts=(replace(rows[bad].verdicts[0], kind="PASS"), *rows[bad].verdicts[1:]))
    forged = check_looks(s.cells[0], rows)
    assert (forged.differing, len(forged.differences)) == (1, 1)
    assert "stored all PASS" in render_looks(forged)
    assert "computed all FAIL" in render_looks(forged)
    older = [replace(r, seen=None) for r in s.rows()]
    assert "say too little" in render_looks(check_looks(s.cells[0], older))
    with pytest.raises(UsageError, match="nothing was ever judged"):
        check_looks(s.cells[0], [])


def test_a_number_that_is_none_is_a_value_error_as_any_other_rot() -> None:
    for rot in ('"1.0x"', '""', '"--"'):
        with pytest.raises(ValueError, match="is no number"):
            decode(Decimal, json.loads(rot))
