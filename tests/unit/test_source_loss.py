"""The source dies: the cap holds; two people's word alone lifts it, where the fleet file declares that and only while it is dead."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from fleetctl.cli.app import App
from fleetctl.cli.commands.promote import command as promote
from fleetctl.domain.people import Actor
from fleetctl.domain.rollout import Order
from fleetctl.domain.workload import OnSourceLoss
from fleetctl.errors import FleetctlError, PlanStale
from fleetctl.formats.fleet_file import parse_fleet
from fleetctl.planning.rollout_spec import spec_for
from fleetctl.ports.people import Signatures
from fleetctl.usecases.lift import LiftPorts, ask_lift, became
from fleetctl.usecases.proof import Proof
from tests.cases.planning_fleet import cell, lab_fleet, lab_policy, plan_of, pool, workload
from tests.rollouts import CELL, PERSON
from tests.simulator import SOURCE, TARGET, Simulation, quick
from tests.unit.test_fleet_file import SMALL, mistakes

BEN = Actor(kind="person", name="ben", via="cli")


def world(declared: OnSourceLoss = "lift_after_two_signatures", cap_bp: int = 5_000) -> Simulation:
    """Return a cell at its first step whose source then answers nothing at all."""
    s = Simulation(of=replace(quick(), on_source_loss=declared, cap_bp=cap_bp), rate_per_s=40)
    s.begin("canary")
    s.at("canary")
    s.ready.share[SOURCE] = 0.0
    return s


def say(s: Simulation, *people: Actor) -> None:
    for who in people:
        s.store.order(CELL, Order(kind="lift", actor=who, at=s.clock.now()))
    s.look_now()
    for _ in range(8):
        s.tick_once()
        s.clock.advance(timedelta(seconds=1))


def pages(s: Simulation) -> list[str]:
    return [n.text for n in s.notices.sent if n.kind == "notify.page"]


def test_two_people_lift_the_cap_of_a_lost_source_and_one_who_says_it_twice_does_not() -> None:
    s = world()
    say(s, PERSON, PERSON)
    assert s.bp() == 1_000
    say(s, BEN)
    assert (s.bp(), s.target.splits[CELL].cap_bp) == (10_000, 10_000)
    assert s.rollout().hold_reason == "source.lost"
    assert pages(s) == [
        f"{CELL}: the source is lost; {PERSON.name} and ben lifted the cap: everybody is on {TARGET} until: fleetctl fallback {CELL}"
    ]
    assert sorted(e.actor.name for e in s.store.events(CELL, 0) if e.kind == "order.lift") == sorted((PERSON.name, PERSON.name, "ben"))
    lease = s.target.splits[CELL].lease_until
    s.clock.advance(timedelta(seconds=100))
    say(s)
    assert s.target.splits[CELL].lease_until > lease, "it is renewed: the source is dead, no guard could take it home"
    s.ready.share[SOURCE] = 1.0
    say(s)
    assert s.bp() == 10_000, "nobody goes back by himself"
    s.store.order(CELL, Order(kind="fallback", actor=BEN, at=s.clock.now()))
    say(s)
    assert (s.bp(), s.rollout().ended) == (0, "fell_back")


def test_while_the_source_answers_anything_the_cap_stays_and_both_must_say_it_again() -> None:
    s = world()
    s.ready.share[SOURCE] = 0.25
    say(s, PERSON, BEN)
    assert (s.bp(), s.rollout().lifted_by) == (1_000, ())
    s.ready.share[SOURCE] = 0.0
    say(s, BEN)
    assert s.bp() == 1_000
    s.ready.share[TARGET] = 0.0
    say(s, PERSON)
    assert s.bp() == 1_000, "nor is anybody sent to a target that answers nothing"


@pytest.mark.parametrize("order", ["rollback", "abort"])
def test_on_the_way_back_no_customer_goes_to_a_source_that_was_not_proven(order: str) -> None:
    s = world()
    say(s, PERSON, BEN)
    assert s.bp() == 10_000
    s.store.order(CELL, Order(kind=order, actor=BEN, at=s.clock.now()))  # type: ignore[arg-type]
    say(s)
    assert (s.bp(), s.rollout().hold_reason) == (10_000, "home.source_not_ready")
    s.ready.share[SOURCE] = 1.0
    say(s)
    assert (s.bp(), s.rollout().ended) == (0, "aborted")


def test_where_the_cap_is_declared_to_hold_no_number_of_people_lifts_it() -> None:
    s = world("hold_cap")
    say(s, PERSON, BEN)
    assert (s.bp(), s.rollout().lifted_by) == (1_000, ())
    assert became(s.rollout()) == "the cap stands: its plan says hold_cap"


def test_what_became_of_a_wish_is_said_as_it_is() -> None:
    s = world()
    say(s, PERSON, BEN)
    assert became(s.rollout()) == "the cap is lifted, source.lost"
    assert became(replace(s.rollout(), weight_bp=1_000, hold_reason="stale")) == "the cap is not lifted yet, stale"
    refused = replace(s.rollout(), lifted_by=(), hold_reason="lift.refused")
    assert became(refused) == f"the cap stands, lift.refused: fleetctl audit list {CELL} says why"
    assert became(replace(refused, hold_reason="")).startswith("the cap stands, refused")
    assert became(replace(refused, direction="home")) == "going home: the cap stands"
    assert became(replace(refused, ended="rolled_back")) == "rolled back"


def test_a_fleet_file_that_was_changed_since_the_plan_lifts_nothing() -> None:
    s = world("hold_cap")
    cells = (replace(cell(CELL, "chat"), on_source_loss="lift_after_two_signatures"),)
    policy = replace(lab_policy(approvals=0), require_signatures=True)
    pools = (pool(SOURCE, "nvidia", "lab-nvidia"), pool(TARGET, "amd", "lab-mi300x"))
    fleet = lab_fleet(pools=pools, workloads=(workload("chat"),), cells=cells, policy=policy)
    proof = Proof(signatures=None, clock=s.clock)  # type: ignore[arg-type]  # nobody is asked to sign
    ports = LiftPorts(store=s.store, records=s.store, clock=s.clock, actor=PERSON, prober=lambda _: s.ready, proof=proof)
    with pytest.raises(PlanStale, match="which says on_source_loss: hold_cap") as e:
        ask_lift(CELL, fleet, ports, "")
    assert e.value.code == "lift.not_planned"


def test_what_is_declared_is_in_the_plans_rollout_and_what_is_not_built_is_refused_with_its_line() -> None:
    fleet = lab_fleet()
    cells = tuple(replace(c, on_source_loss="lift_after_two_signatures") for c in fleet.cells)
    declared = replace(fleet, cells=cells)
    assert spec_for(plan_of(declared), declared, cells[0].id).on_source_loss == "lift_after_two_signatures"
    text = SMALL.replace("    source: green\n", "    source: green\n    on_source_loss: lift_after_two_signatures\n")
    assert text != SMALL
    assert parse_fleet(text, file="f.yaml").cells[0].on_source_loss == "lift_after_two_signatures"
    (said,) = mistakes(text.replace("lift_after_two_signatures", "shed_by_class"))
    assert "on_source_loss: shed_by_class is not built" in said


def test_names_that_terminals_give_lift_nothing_however_many_there_are() -> None:
    s = world()
    declared = replace(cell(CELL, "chat"), on_source_loss="lift_after_two_signatures")
    fleet = lab_fleet(
        pools=(pool(SOURCE, "nvidia", "lab-nvidia"), pool(TARGET, "amd", "lab-mi300x")),
        workloads=(workload("chat"),),
        cells=(declared,),
        policy=lab_policy(approvals=0),
    )
    assert not fleet.policy.require_signatures
    for who in (PERSON, BEN):
        proof = Proof(signatures=cast("Signatures", None), clock=s.clock)
        ports = LiftPorts(store=s.store, records=s.store, clock=s.clock, actor=who, prober=lambda _: s.ready, proof=proof)
        app = App()
        app.__dict__["wiring"] = SimpleNamespace(store=s.store, fleet=fleet, lift_ports=lambda ports=ports: ports)
        done = CliRunner().invoke(promote, [CELL, "--lift-cap", "--confirm", CELL], obj=app)
        assert isinstance(done.exception, FleetctlError)
        assert done.exception.code == "lift.unsigned"
    assert s.rollout().orders == ()
    say(s)
    assert (s.bp(), s.rollout().lifted_by) == (1_000, ())
