"""An ALB's split over a double that refuses what AWS refuses and keeps clients by cookies as it does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetctl.adapters.routers.alb.router import TAG, TOKEN_TAG, AlbRouter
from fleetctl.adapters.routers.alb.wire import Elb
from fleetctl.domain.fleet import Connection
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import CellId, PoolId, Token
from fleetctl.domain.split import Applied, Split, Stale
from fleetctl.errors import TrafficNotApplied
from tests.fakes.elb_rules import ARN, RuleClient, failing, free, group, throttled

CELL = CellId("chat")
T0 = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


class Rig:
    """A rule, its router, and a clock."""

    def __init__(self, **settings: str) -> None:
        self.aws, self.now, self.settings = RuleClient(CELL), T0, settings
        self.router = self.another()
        self.router.fence(CELL, Token(1))

    def another(self) -> AlbRouter:
        connection = Connection(name="edge", kind="alb", settings={f"rule.{CELL}": ARN, **self.settings})
        elb = Elb(lambda _: self.aws, "edge", free)
        return AlbRouter(connection, elb=elb, now=lambda: self.now, sources={CELL: PoolId("nvidia")})

    def set(self, bp: int, token: int = 1, router: AlbRouter | None = None) -> Applied | Stale:
        until = self.now + timedelta(minutes=3)
        return (router or self.router).set(Split(cell=CELL, target_bp=bp, cap_bp=10_000, token=Token(token), lease_until=until))

    def refused(self, bp: int) -> TrafficNotApplied:
        with pytest.raises(TrafficNotApplied) as why:
            self.set(bp)
        return why.value


def test_a_raise_whose_lease_cannot_be_written_is_none() -> None:
    rig = Rig()
    rig.aws.fails["add_tags"] = failing
    assert "InternalFailure" in str(rig.refused(1_000))
    assert (rig.aws.written, rig.router.read(CELL).target_bp) == ([], 0)


@pytest.mark.parametrize("broken", ["answer lost", "looks fail"])
def test_a_raise_that_cannot_be_shown_is_taken_back_in_the_same_call(broken: str) -> None:
    rig = Rig()
    rig.set(500)
    real = rig.aws.modify_rule

    def modify(**given: Any) -> None:
        real(**given)
        rig.aws.modify_rule = real  # type: ignore[method-assign]
        if broken == "answer lost":
            failing()
        looks = [None]
        rig.aws.fails["describe_rules"] = lambda: failing() if looks and looks.pop() is None else None

    rig.aws.modify_rule = modify  # type: ignore[method-assign]
    assert "5 % stand again" in rig.refused(1_000).message
    rig.aws.fails.clear()
    assert rig.router.read(CELL).target_bp == 500


def test_a_look_that_shows_what_stood_before_is_repeated() -> None:
    rig = Rig()
    rig.aws.fails["modify_rule"] = lambda: setattr(rig.aws, "stale", 2)
    done = rig.set(1_000)
    assert isinstance(done, Applied)
    assert rig.router.read(CELL).target_bp == 1_000


def test_home_is_done_though_its_tag_cannot_be_written() -> None:
    rig = Rig()
    rig.set(1_000)
    rig.now += timedelta(minutes=1)
    rig.aws.fails["add_tags"] = throttled
    done = rig.set(0)
    assert isinstance(done, Applied)
    assert "its tag is not written" in done.reported
    assert rig.router.read(CELL).target_bp == 0


def test_target_groups_that_are_sticky_by_themselves_are_never_raised_and_doctor_is_told() -> None:
    rig = Rig(sticky_s="3600")
    rig.aws.sticky_groups = {rig.aws.baseline}
    why = rig.refused(1_000)
    assert why.code == "traffic.refused"
    assert "target group chat-baseline has stickiness of its own" in why.message
    assert rig.router.refusal(CELL) in why.message
    assert rig.aws.written == []
    rig.aws.sticky_groups = set()
    assert rig.router.refusal(CELL) == ""
    assert isinstance(rig.set(1_000), Applied)


@pytest.mark.parametrize("sticky_s", ["", "3600"])
def test_a_target_group_that_became_sticky_since_never_keeps_customers_from_home(sticky_s: str) -> None:
    rig = Rig(**({"sticky_s": sticky_s} if sticky_s else {}))
    rig.set(2_500)
    rig.aws.answer(400)
    rig.aws.sticky_groups = {rig.aws.canary}
    done = rig.set(1_000)
    assert isinstance(done, Applied), "a step down is taken as far as AWS lets it"
    assert "sticky by itself" in done.reported
    assert rig.router.read(CELL).target_bp == 1_000
    done = rig.set(0)
    assert isinstance(done, Applied)
    assert rig.router.read(CELL).target_bp == 0
    assert rig.aws.weights() == {"chat-baseline": 999}
    assert rig.aws.answer(400) == 0
    assert isinstance(rig.set(0), Applied), "again is as good"
    assert "was taken out to come home" in rig.refused(1_000).message
    rig.aws.sticky_groups = set()
    rig.aws.actions = RuleClient(CELL).actions
    rig.now += timedelta(hours=2)
    assert isinstance(rig.set(1_000), Applied), "put back by a person"


def test_a_rule_that_never_had_the_targets_group_is_no_cell_at_home() -> None:
    rig = Rig()
    rig.aws.actions[0]["ForwardConfig"]["TargetGroups"].pop()
    with pytest.raises(TrafficNotApplied, match="no target group"):
        rig.router.read(CELL)


def test_cookies_hold_nobody_where_the_weight_is_all_or_nothing_or_has_been_lowered() -> None:
    rig = Rig(sticky_s="3600")
    rig.set(5_000)
    assert 400 < rig.aws.answer(1_000) < 600
    rig.set(9_500)
    assert 400 < rig.aws.answer(1_000) < 999, "on the way up a client keeps its side"
    rig.set(10_000)
    assert rig.aws.answer(1_000) == 1_000, "the source is about to be given back: nobody may be held there"
    rig.set(5_000)
    assert 400 < rig.aws.answer(1_000, seed=2) < 600, "the weight alone says who goes where"
    rig.set(1_000)
    assert 50 < rig.aws.answer(1_000, seed=3) < 160
    rig.set(0)
    assert rig.aws.answer(1_000) == 0


def test_a_raise_waits_until_the_cookies_of_the_weight_before_are_over() -> None:
    rig = Rig(sticky_s="600")
    rig.set(5_000)
    rig.aws.answer(1_000)
    rig.set(0)
    for later in (0, 300, 599):
        rig.now = T0 + timedelta(seconds=later)
        why = rig.refused(100)
        assert why.code == "traffic.refused"
        assert "may hold its cookie until 2026-12-01 12:10:00Z" in why.message
    assert rig.aws.answer(1_000) == 0
    rig.now = T0 + timedelta(seconds=600)
    rig.aws._cookies.clear()  # they are over
    assert isinstance(rig.set(100), Applied)
    assert rig.aws.answer(1_000) < 40


def test_a_renewal_and_a_step_down_leave_what_somebody_else_routes_to() -> None:
    rig = Rig()
    rig.set(1_000)
    rig.aws.actions[0]["ForwardConfig"]["TargetGroups"].append({"TargetGroupArn": group("maintenance"), "Weight": 999})
    for minutes in range(3):
        rig.now += timedelta(minutes=minutes)
        written = len(rig.aws.written)
        assert isinstance(rig.set(rig.router.read(CELL).target_bp), Applied)
        assert len(rig.aws.written) == written, "a lease alone was renewed"
    assert rig.aws.weights() == {"chat-canary": 100, "chat-baseline": 900, "maintenance": 999}
    assert isinstance(rig.set(200), Applied)
    assert rig.aws.weights() == {"chat-canary": 39, "chat-baseline": 961, "maintenance": 999}
    assert isinstance(rig.set(0), Applied)
    assert rig.aws.weights() == {"chat-canary": 0, "chat-baseline": 999, "maintenance": 999}


LOSSES: dict[str, Callable[[RuleClient], object]] = {
    "token": lambda aws: aws.tags.pop(TOKEN_TAG, None),
    "mark": lambda aws: aws.tags.pop(TAG, None),
    "both": lambda aws: aws.tags.clear(),
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_rule_that_loses_its_tags_lets_no_stale_controller_raise_and_everybody_go_home(lost: str) -> None:
    rig = Rig()
    rig.set(2_500)
    person = rig.another()
    high = 1 + HOME_TOKEN_STEP
    person.fence(CELL, Token(high))
    rig.set(0, high, person)
    assert isinstance(rig.set(1_000), Stale)
    LOSSES[lost](rig.aws)
    for router, token in ((rig.router, 2), (rig.another(), 2)):
        if lost == "token":
            assert router.fence(CELL, Token(token)) == Stale(cell=CELL, seen=Token(high)), "the mark beside it holds the token too"
    if lost != "token":
        assert rig.router.read(CELL).token == high, "what was seen once is the floor"
        assert isinstance(rig.router.fence(CELL, Token(2)), Stale)
    assert isinstance(person.fence(CELL, Token(high + 1)), Split)
    with pytest.raises(TrafficNotApplied, match=r"it shows no tag .* which it had") as why:
        rig.set(1_000, high + 1, person)
    assert why.value.code == "traffic.not_shown"
    assert isinstance(rig.set(0, high + 1, person), Applied)


@pytest.mark.parametrize("lost", LOSSES)
def test_customers_on_the_target_of_a_rule_that_loses_its_tags_go_home_by_whoever_saw_them(lost: str) -> None:
    rig = Rig()
    rig.set(2_500)
    LOSSES[lost](rig.aws)
    shown = rig.router.read(CELL)
    assert (shown.target_bp, shown.token) == (2_500, 1)
    assert isinstance(rig.set(2_500), Applied), "what stands may stand"
    LOSSES[lost](rig.aws)
    assert isinstance(rig.router.fence(CELL, Token(1 + HOME_TOKEN_STEP)), Split)
    assert isinstance(rig.set(0, 1 + HOME_TOKEN_STEP), Applied)
    assert rig.router.read(CELL).target_bp == 0
    later = 2 + HOME_TOKEN_STEP
    assert isinstance(rig.router.fence(CELL, Token(later)), Split)
    assert isinstance(rig.set(1_000, later), Applied), "home by its own token: what was lost is whole again"
