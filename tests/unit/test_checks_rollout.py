"""Checks of both arms in the tick: what FAILed, settled nothing or holds no more keeps the weight from being raised; nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from fleetctl.analysis.checks import AGAIN, seen_check
from fleetctl.domain.checks import CheckResult, CheckSeen, record_id
from fleetctl.domain.evidence import VerdictKind
from fleetctl.domain.identity import ArmsIdentity, Identity
from fleetctl.domain.ids import CellId
from fleetctl.domain.rollout import Order
from fleetctl.domain.workload import CheckName, CheckSpec
from fleetctl.usecases.tick import TickPorts
from tests.rollouts import CELL, PERSON, T0
from tests.simulator import Simulation, quick
from tests.unit.test_identity_rollout import ONE, Told

CONTRACT, QUALITY = CheckSpec(name="contract"), CheckSpec(name="quality")


class Kept:
    """Checks whose results the test writes; what the tick begins is counted, and ends when the test says so."""

    def __init__(self, s: Simulation) -> None:
        self.s = s
        self.results: dict[CheckName, CheckResult] = {}
        self.started: list[CheckName] = []
        self.running: set[CheckName] = set()
        self.does: Callable[[CheckSpec], None] = lambda _: None

    def standing(self, c: CellId, checks: Sequence[CheckSpec], arms: str) -> tuple[CheckSeen, ...]:
        now = self.s.clock.now()
        return tuple(
            seen_check(spec, self.results.get(spec.name), arms, spec.bound(), now, is_running=spec.name in self.running) for spec in checks
        )

    def start(self, c: CellId, checks: Sequence[CheckSpec]) -> None:
        for spec in checks:
            if spec.name not in self.running:
                self.started.append(spec.name)
                self.does(spec)


class CheckedSimulation(Simulation):
    """A simulation whose fleet file asks for checks."""

    def ports(self) -> TickPorts:
        if not hasattr(self, "told"):
            self.told, self.kept = Told(self), Kept(self)
        return replace(super().ports(), identity=lambda _: self.told, checks=self.kept)

    def keeps(self, name: CheckName, kind: VerdictKind, why: str = "", arms: str = "", bound: str = "") -> None:
        found = self.told.arms(CELL)
        assert found is not None
        self.kept.results[name] = CheckResult(
            cell=CELL,
            check=name,
            at=self.clock.now(),
            arms=arms or found.hash(),
            bound=bound or CheckSpec(name=name).bound(),
            kind=kind,
            why=why,
        )


def started(*checks: CheckSpec) -> CheckedSimulation:
    s = CheckedSimulation(of=replace(quick(), checks=checks or (CONTRACT,)))
    s.ports()
    s.begin()
    return s


def test_a_kept_pass_lets_the_cell_arrive_and_nothing_is_run_again() -> None:
    s = started(CONTRACT, QUALITY)
    s.keeps("contract", "PASS")
    s.keeps("quality", "PASS")
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"
    assert s.kept.started == []


def test_what_is_due_is_begun_by_the_tick_and_the_weight_waits_for_it() -> None:
    s = started(CONTRACT, QUALITY)
    s.kept.does = lambda spec: s.kept.running.add(spec.name)
    s.run(60)
    assert (s.bp(), s.rollout().phase, s.kept.started) == (0, "preflight", ["contract", "quality"])
    assert "comparing both arms (contract and quality)" in s.results[-1].why
    assert s.notices.sent == []
    s.kept.running.clear()
    s.keeps("contract", "PASS")
    s.keeps("quality", "PASS")
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


@pytest.mark.parametrize(
    ("kind", "why", "code", "says"),
    [
        ("FAIL", "chat.stop (no stop)", "checks.failed", "contract FAIL: chat.stop (no stop)"),
        ("INCONCLUSIVE", "12 of 20 texts", "checks.open", "contract settled nothing (12 of 20 texts"),
        ("NO_DATA", "no tokens are told", "checks.due", "contract cannot be made (no tokens are told)"),
    ],
)
def test_what_is_no_pass_holds_the_step_and_says_why(kind: VerdictKind, why: str, code: str, says: str) -> None:
    s = started()
    s.kept.does = lambda spec: s.keeps(spec.name, kind, why)
    s.run(40)
    assert (s.bp(), s.rollout().hold_reason) == (0, code)
    assert says in s.results[-1].why
    assert f"fleetctl calibrate {CELL} --checks contract" in s.results[-1].why
    assert sum(n.kind == "notify.page" for n in s.notices.sent) == 1
    assert len(s.kept.started) == 1, "what was answered is not asked again and again"


def test_a_person_may_promote_past_what_settled_nothing_and_never_past_a_fail() -> None:
    for kind, arrives in (("INCONCLUSIVE", True), ("FAIL", False)):
        s = started()
        s.kept.does = lambda spec, s=s, kind=kind: s.keeps(spec.name, kind, "because")  # type: ignore[misc]
        s.run(20)
        s.store.order(CELL, Order(kind="promote", actor=PERSON, at=s.clock.now()))
        s.run(20)
        assert (s.bp() > 0) == arrives, kind


def test_a_weight_that_was_lost_comes_back_without_asking_a_person_twice_but_not_past_a_fail() -> None:
    cases: tuple[tuple[VerdictKind, int], ...] = (("INCONCLUSIVE", 1000), ("FAIL", 0))
    for kind, back in cases:
        s = started()
        s.kept.does = lambda spec, s=s: s.keeps(spec.name, "INCONCLUSIVE", "because")  # type: ignore[misc]
        s.run(20)
        s.store.order(CELL, Order(kind="promote", actor=PERSON, at=s.clock.now()))
        s.at("canary")
        s.keeps("contract", kind, "because")
        s.target.splits[CELL] = replace(s.target.splits[CELL], target_bp=0, lease_until=s.clock.now() - timedelta(seconds=1))
        s.run(3)
        assert s.bp() == back, kind


def test_a_changed_arm_makes_the_result_stale_and_the_next_raise_waits_for_a_new_one() -> None:
    s = started()
    s.kept.does = lambda spec: s.keeps(spec.name, "PASS" if len(s.kept.started) == 1 else "FAIL", "tools.call (no call)")
    s.at("canary")
    s.told.baseline = s.told.canary = replace(ONE, weights="w2")
    s.run(200, lambda: s.rollout().hold_reason == "checks.failed")
    s.run(10)
    assert (s.bp(), s.rollout().phase, s.rollout().hold_reason) == (1000, "canary", "checks.failed")
    assert s.kept.started == ["contract", "contract"]
    assert s.target.splits[s.rollout().cell].lease_until > s.clock.now(), "what the customers have is kept"
    s.keeps("contract", "PASS")
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_by_hand_nothing_is_begun_and_a_person_is_told_what_to_run() -> None:
    s = started(replace(CONTRACT, is_auto=False))
    s.run(30)
    assert (s.bp(), s.rollout().hold_reason, s.kept.started) == (0, "checks.due", [])
    assert "contract was never run" in s.results[-1].why
    s.keeps("contract", "PASS", arms="0" * 16)
    s.run(5)
    assert "an arm serves something else than when it ran" in s.results[-1].why
    s.keeps("contract", "PASS")
    s.run(300, lambda: bool(s.rollout().ended))
    assert s.rollout().ended == "complete"


def test_checks_never_keep_a_cell_from_going_home() -> None:
    s = started()
    s.kept.does = lambda spec: s.keeps(spec.name, "PASS")
    s.at("canary")
    s.keeps("contract", "FAIL", "x")
    s.failing = 0.5
    s.run(60, lambda: bool(s.rollout().ended))
    assert (s.bp(), s.rollout().ended) == (0, "rolled_back")


def test_where_nobody_can_run_checks_the_weight_stays() -> None:
    s = CheckedSimulation(of=replace(quick(), checks=(CONTRACT,)))
    s.ports()
    s.begin()
    ports = replace(s.ports(), checks=None)
    for _ in range(20):
        s.serve(1.0)
        s.tick_once(ports=ports)
    assert s.bp() == 0
    assert "nobody can run it here" in s.results[-1].why


def arms(weights: str) -> ArmsIdentity:
    same = Identity(model="m", weights=weights)
    return ArmsIdentity(baseline=same, canary=same, at=T0)


def kept_at(kind: VerdictKind, **changes: object) -> CheckResult:
    values = {"cell": CELL, "check": "quality", "at": T0, "arms": arms("w").hash(), "bound": QUALITY.bound(), "kind": kind, "why": "why"}
    return CheckResult(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "spec", "later", "state"),
    [
        (None, QUALITY, timedelta(0), "due"),
        (kept_at("PASS"), QUALITY, timedelta(days=6), "passed"),
        (kept_at("PASS"), QUALITY, timedelta(days=8), "due"),
        (kept_at("PASS"), replace(QUALITY, numbers={"excess": 0.01}), timedelta(0), "due"),
        (kept_at("PASS"), replace(QUALITY, file="texts.jsonl"), timedelta(0), "due"),
        (kept_at("PASS", arms=arms("other").hash()), QUALITY, timedelta(0), "due"),
        (kept_at("FAIL"), QUALITY, timedelta(days=1), "failed"),
        (kept_at("FAIL", arms=arms("other").hash()), QUALITY, timedelta(0), "due"),
        (kept_at("INCONCLUSIVE", missing=495), QUALITY, timedelta(0), "open"),
        (kept_at("NO_DATA"), QUALITY, AGAIN, "unknown"),
        (kept_at("NO_DATA", arms=""), QUALITY, AGAIN, "unknown"),
        (kept_at("NO_DATA"), QUALITY, 2 * AGAIN, "due"),
    ],
)
def test_only_a_fresh_result_of_these_arms_and_settings_counts(
    result: CheckResult | None, spec: CheckSpec, later: timedelta, state: str
) -> None:
    found = seen_check(spec, result, arms("w").hash(), spec.bound(), T0 + later, is_running=False)
    assert found.state == state, found
    assert seen_check(spec, result, "", spec.bound(), T0, is_running=False).state == "unknown"
    assert seen_check(spec, result, arms("w").hash(), spec.bound(), T0, is_running=True).state == "running"
    assert record_id(CELL, "quality") == "chat-lab quality"
