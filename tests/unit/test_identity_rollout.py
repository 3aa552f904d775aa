"""Identity before evidence, in the tick: arms that differ get no verdict, a change freezes the weight and begins the evidence anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.identity import compare_arms
from fleetctl.domain.identity import ArmsIdentity, Identity
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.usecases.tick import TickPorts
from tests.rollouts import CELL, PERSON
from tests.simulator import Simulation, quick

ONE = Identity(model="m", engine="vllm 0.11", weights="w1", tokenizer="t1", chat_template="c1", flags="f1")


class Told:
    """What both arms say they serve; None: an arm does not answer."""

    def __init__(self, s: Simulation) -> None:
        self.s, self.baseline, self.canary = s, ONE, ONE
        self.silent = False

    def arms(self, c: CellId) -> ArmsIdentity | None:
        return None if self.silent else compare_arms(self.baseline, self.canary, self.s.clock.now())


class TellingSimulation(Simulation):
    """A simulation whose arms tell what they serve."""

    def ports(self) -> TickPorts:
        if not hasattr(self, "told"):
            self.told: Told = Told(self)
        return replace(super().ports(), identity=lambda _: self.told)


def started(**changes: float) -> TellingSimulation:
    s = TellingSimulation(of=quick(), **changes)  # type: ignore[arg-type]
    s.ports()
    s.begin()
    return s


def test_equal_arms_arrive_as_ever() -> None:
    s = started()
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_arms_that_differ_never_get_weight() -> None:
    s = started()
    s.told.canary = replace(ONE, weights="w2")
    s.run(60)
    assert (s.bp(), s.rollout().hold_reason) == (0, "identity.differs")
    assert "weights" in s.results[-1].why
    assert sum(n.kind == "notify.page" for n in s.notices.sent) == 1


def test_a_change_in_mid_migration_freezes_the_weight_until_the_arms_are_alike_and_evidence_begins_anew() -> None:
    s = started()
    s.at("canary")
    s.run(3)
    began = s.rollout().since
    s.told.canary = replace(ONE, chat_template="c2")
    s.run(60)
    assert (s.bp(), s.rollout().phase, s.rollout().hold_reason) == (1000, "canary", "identity.differs")
    assert s.target.splits[s.rollout().cell].lease_until > s.clock.now()
    s.told.canary = ONE
    s.run(3)
    again = s.rollout().since
    assert began is not None
    assert again is not None
    assert again.since > began.since
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_both_arms_changed_alike_restarts_the_evidence_without_a_hold() -> None:
    s = started()
    s.at("ramp")
    before = s.rollout().since
    s.told.baseline = s.told.canary = replace(ONE, weights="w2")
    s.run(3)
    after = s.rollout().since
    assert before is not None
    assert after is not None
    assert after.since > before.since
    assert s.rollout().phase == "ramp"


@pytest.mark.parametrize(("slower", "failing", "ended"), [(2.0, 0.0, ""), (1.0, 0.5, "rolled_back")])
def test_arms_that_differ_get_no_verdict_but_the_breaker_stays_armed(slower: float, failing: float, ended: str) -> None:
    s = started()
    s.at("canary")
    s.told.canary = replace(ONE, weights="w2")
    s.run(1)
    s.slower, s.failing = slower, failing
    s.run(40)
    assert s.rollout().ended == ended


def test_an_arm_that_does_not_tell_changes_nothing() -> None:
    s = started()
    s.at("canary")
    s.told.silent = True
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_an_order_to_go_on_does_not_skip_the_question_what_the_arms_serve() -> None:
    s = TellingSimulation(of=quick())
    s.ports()
    s.begin(until="canary")
    s.run(120, lambda: s.rollout().step_done and s.bp() == 1000)
    s.told.canary = replace(ONE, weights="w2")
    s.run(5)
    s.store.order(CELL, Order(kind="advance", actor=PERSON, at=s.clock.now()))
    s.run(20)
    assert (s.bp(), s.rollout().hold_reason) == (1000, "identity.differs")
    s.store.order(CELL, Order(kind="abort", actor=PERSON, at=s.clock.now()))
    s.run(5)
    assert (s.bp(), s.rollout().ended) == (0, "aborted"), "the way home asks nobody"


def test_arms_that_differ_without_evidence_go_home_as_any_cell_without_it() -> None:
    s = started()
    s.at("canary")
    s.told.canary = replace(ONE, weights="w2")
    s.evidence.down = True
    s.run(160, lambda: bool(s.rollout().ended))
    assert (s.bp(), s.rollout().ended) == (0, "lost_evidence")


class Flapping(Told):
    """Answers anew every second; from `since` on the canary tells another identity in turns of `turn` answers."""

    def __init__(self, s: Simulation, turn: int) -> None:
        super().__init__(s)
        self.turn, self.asked, self.flaps = turn, 0, False

    def arms(self, c: CellId) -> ArmsIdentity | None:
        self.asked += self.flaps
        other = self.flaps and (self.asked // self.turn) % 2 == 1
        return compare_arms(self.baseline, replace(ONE, weights="w2") if other else ONE, self.s.clock.now())


@pytest.mark.parametrize("turn", [1, 3, 7])
def test_an_arm_that_flaps_between_two_identities_is_told_once_gets_no_weight_and_keeps_its_deadline(turn: int) -> None:
    s = TellingSimulation(of=quick(step_deadline=timedelta(seconds=40)))
    s.ports()
    s.told = flapping = Flapping(s, turn)
    s.begin()
    s.at("canary")
    s.run(3)
    deadline, sent = s.rollout().deadline, len(s.notices.sent)
    flapping.flaps = True
    s.run(60)
    told = [n.kind for n in s.notices.sent[sent:]]
    assert len(told) == len({n.text for n in s.notices.sent[sent:]}), "each matter is told once"
    assert told.count("notify.page") == (0 if turn == 1 else 1), "two answers that agree once are a change, the same one again is no news"
    assert told.count("notify.warning") <= 3
    assert (s.bp(), s.rollout().phase) == (1000, "canary"), "nobody more is sent there"
    assert s.rollout().deadline == deadline


def test_one_odd_answer_holds_until_the_next_and_restarts_nothing() -> None:
    s = started()
    s.at("canary")
    s.run(3)
    before = s.rollout().since
    s.told.canary = replace(ONE, weights="w2")
    s.run(1)
    assert s.rollout().hold_reason == "identity.unsure"
    s.told.canary = ONE
    s.run(3)
    assert s.rollout().hold_reason == ""
    assert s.rollout().since == before, "no evidence is lost"
    assert not [n for n in s.notices.sent if n.kind == "notify.page"]
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_an_arm_that_flaps_without_evidence_goes_home_as_any_cell_without_it() -> None:
    s = TellingSimulation(of=quick())
    s.ports()
    s.told = flapping = Flapping(s, 1)
    s.begin()
    s.at("canary")
    flapping.flaps, s.evidence.down = True, True
    s.run(160, lambda: bool(s.rollout().ended))
    assert (s.bp(), s.rollout().ended) == (0, "lost_evidence")
