"""Lifting the cap of a cell whose source is dead: by two people's SSH keys, on the router in 5 s."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fleetctl.adapters.signing import ALLOWED, SshSignatures
from fleetctl.domain.cap_lift import CapLift
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import PlanId
from fleetctl.domain.plan import Approval
from fleetctl.domain.rollout import Order
from fleetctl.domain.workload import OnSourceLoss
from fleetctl.errors import CredentialsMissing, FleetctlError
from fleetctl.usecases.lift import LiftPorts, ask_lift, given_for, sign_lift
from fleetctl.usecases.proof import Proof, check_signatures
from fleetctl.usecases.tick import tick
from tests.cases.planning_fleet import cell, lab_fleet, lab_policy, pool, workload
from tests.lab.haproxy_lab import CELL as EDGE
from tests.lab.haproxy_lab import PIN_KEY, put, rig, until
from tests.lab.haproxy_lab import SOURCE as EDGE_SOURCE
from tests.lab.people import allowed_line, make_keys
from tests.rollouts import CELL, PERSON
from tests.simulator import SOURCE, TARGET, Simulation, quick
from tests.unit.test_tick import SETTINGS

pytestmark = pytest.mark.lab
PEOPLE = ("ada", "bob", "eve", "zed")
"""ada asks, bob and eve may sign; zed is none of the allowed signers."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_keys(tmp_path_factory.mktemp("keys"), PEOPLE)
    (folder / ALLOWED).write_text("".join(allowed_line(folder, name) for name in PEOPLE[:3]))
    return folder


class World:
    """A cell at its canary step whose source has just died."""

    def __init__(self, keys: Path, loss: OnSourceLoss = "lift_after_two_signatures", *, signatures: bool = True) -> None:
        self.keys = keys
        self.sim = Simulation(of=replace(quick(), on_source_loss=loss))
        self.sim.begin()
        self.sim.run(120, lambda: self.sim.bp() > 0 and self.sim.rollout().settled_at is not None)
        assert 0 < self.sim.bp() < 10_000
        self.fleet = lab_fleet(
            pools=(pool(SOURCE, "nvidia", "lab-nvidia"), pool(TARGET, "amd", "lab-mi300x")),
            workloads=(workload("chat"),),
            cells=(replace(cell(CELL, "chat"), on_source_loss=loss),),
            policy=replace(lab_policy(approvals=0), require_signatures=signatures),
        )
        self.dies()

    def dies(self) -> None:
        self.sim.ready.share[SOURCE] = 0.0

    def ports(self, who: str) -> LiftPorts:
        proof = Proof(signatures=SshSignatures(self.keys, self.keys / who), clock=self.sim.clock)
        store = self.sim.store
        return LiftPorts(store=store, records=store, clock=self.sim.clock, actor=PERSON, prober=lambda _: self.sim.ready, proof=proof)

    def ask(self) -> CapLift:
        return ask_lift(CELL, self.fleet, self.ports("ada"), "the hall is dark")

    def sign(self, wish: CapLift, who: str) -> int:
        return sign_lift(wish.id, self.fleet, self.ports(who))[1]

    def orders(self) -> list[str]:
        return [o.kind for o in self.sim.rollout().orders]

    def refused(self, act: Callable[[], object]) -> str:
        with pytest.raises(FleetctlError) as e:
            act()
        assert self.orders() == []
        assert e.value.hint
        return e.value.code


def test_two_others_lift_it_until_a_person_brings_it_home(keys: Path) -> None:
    w = World(keys)
    wish = w.ask()
    assert w.sign(wish, "bob") == 1
    assert w.orders() == [], "one signature moves nobody"
    assert w.sign(wish, "eve") == 0
    assert w.orders() == ["lift", "lift"], "one per person, under the name that the key proves"
    tick(CELL, w.sim.ports(), SETTINGS)
    assert w.sim.bp() == 10_000
    kinds = [e.kind for chain in (CELL, None) for e in w.sim.store.events(chain, 0)]
    assert [kinds.count(k) for k in ("lift.asked", "lift.signed", "order.lift")] == [1, 2, 2]
    assert check_signatures(w.sim.store, w.sim.store.events(None, 0), w.ports("ada").proof).faults == ()
    w.sim.run(30, lambda: False)
    assert w.sim.bp() == 10_000
    assert set(w.sim.rollout().lifted_by) == {"bob", "eve"}
    w.sim.ready.share[SOURCE] = 1.0
    w.sim.store.order(CELL, Order(kind="fallback", actor=PERSON, at=w.sim.clock.now()))
    w.sim.look_now()
    w.sim.run(5, lambda: bool(w.sim.rollout().ended))
    assert (w.sim.rollout().ended, w.sim.bp()) == ("fell_back", 0)


def test_a_target_that_answers_nothing_gets_nobody_more(keys: Path) -> None:
    w = World(keys)
    at_step = w.sim.bp()
    w.sim.ready.share[TARGET] = 0.0
    wish = w.ask()
    w.sign(wish, "bob")
    w.sign(wish, "eve")
    tick(CELL, w.sim.ports(), SETTINGS)
    assert w.sim.bp() == at_step
    assert w.sim.rollout().hold_reason == "lift.refused"


def test_one_signer_and_the_same_person_twice_are_not_two(keys: Path) -> None:
    w = World(keys)
    wish = w.ask()
    assert [w.sign(wish, "bob"), w.sign(wish, "bob")] == [1, 1]
    assert w.orders() == []


def test_whoever_asked_and_a_stranger_cannot_sign(keys: Path) -> None:
    w = World(keys)
    wish = w.ask()
    assert w.refused(lambda: w.sign(wish, "ada")) == "approve.author"
    with pytest.raises(CredentialsMissing):
        w.sign(wish, "zed")
    assert w.orders() == []


def test_a_wish_and_signatures_end(keys: Path) -> None:
    w = World(keys)
    wish = w.ask()
    w.sign(wish, "bob")
    w.sim.clock.advance(timedelta(minutes=15))
    assert w.refused(lambda: w.sign(wish, "eve")) == "lift.expired"
    assert given_for(wish, w.fleet, w.ports("eve")).people == ()


@pytest.mark.parametrize("forge", ["name", "text", "other", "unsigned"])
def test_a_forged_signature_counts_for_nothing_and_the_audit_finds_it(keys: Path, forge: str) -> None:
    w = World(keys)
    wish = w.ask()
    w.sign(wish, "bob")
    own = w.sim.store.get(Approval, f"{wish.id}-bob")
    assert own is not None
    eve = replace(own.actor, name="eve")
    forged = {
        "name": replace(own, actor=eve),
        "text": replace(own, actor=eve, note="yes"),
        "other": replace(own, actor=eve, signature=w.ports("eve").proof.signatures.sign(b"something else")),
        "unsigned": replace(own, actor=eve, signature=""),
    }[forge]
    w.sim.store.put(f"{wish.id}-eve", forged)
    found = given_for(wish, w.fleet, w.ports("eve"))
    assert (found.people, found.missing) == (("bob",), 1)
    faults = check_signatures(w.sim.store, w.sim.store.events(None, 0), w.ports("ada").proof).faults
    assert forge == "unsigned" or any("eve" in f for f in faults)


def test_what_may_not_be_lifted_is_refused_with_what_to_do(keys: Path) -> None:
    assert (w := World(keys, "hold_cap")).refused(w.ask) == "lift.not_declared"
    assert (w := World(keys, signatures=False)).refused(w.ask) == "lift.unsigned"
    w = World(keys)
    w.sim.ready.share[SOURCE] = 0.5
    assert w.refused(w.ask) == "lift.source_answers"
    w.dies()
    wish = w.ask()
    w.sim.ready.share[SOURCE] = 1.0
    assert w.refused(lambda: w.sign(wish, "bob")) == "lift.source_answers"
    assert w.refused(lambda: sign_lift(PlanId("l000000000000"), w.fleet, w.ports("bob"))) == "lift.missing"
    w.dies()
    w.sim.target.splits[CELL] = replace(w.sim.target.splits[CELL], token=w.sim.target.splits[CELL].token + HOME_TOKEN_STEP)  # type: ignore[arg-type]
    w.sign(wish, "bob")
    w.sign(wish, "eve")
    tick(CELL, w.sim.ports(), SETTINGS)
    assert w.sim.bp() < 10_000, "a ticker that somebody fenced off lifts nothing"


def test_from_the_second_signature_to_the_router_takes_no_5_seconds(keys: Path) -> None:
    """The real HAProxy, its real prober over a dead source, real keys; the rollout's own rules are those of every tick."""
    from fleetctl.adapters.routers.haproxy.router import replicas_of
    from fleetctl.adapters.routers.prober import CompletionProber

    with rig() as edge:
        edge.healthy(EDGE)
        w = World(keys)
        assert (EDGE, EDGE_SOURCE) == (CELL, SOURCE)
        put(edge.router(), w.sim.bp(), token=1)
        prober = CompletionProber(
            edge.connection, replicas=replicas_of(edge.connection, {}), pin_key=lambda: PIN_KEY, sources={EDGE: EDGE_SOURCE}
        )
        for name, server in edge.backends[EDGE].items():
            if name.startswith("b"):
                server.stop()
        until(lambda: all(s == "DOWN" for n, (s, _) in edge.status(EDGE).items() if n.startswith("b")), "the source is down")

        def ports(who: str) -> LiftPorts:
            return replace(w.ports(who), prober=lambda _: prober)

        wish = ask_lift(EDGE, w.fleet, ports("ada"), "")
        sign_lift(wish.id, w.fleet, ports("bob"))
        began = time.monotonic()
        sign_lift(wish.id, w.fleet, ports("eve"))
        tick(EDGE, replace(w.sim.ports(), router=lambda _: edge.router(), prober=lambda _: prober), SETTINGS)
        took = time.monotonic() - began
        assert edge.router().read(EDGE).target_bp == 10_000
        answers = [edge.ask(EDGE) for _ in range(20)]
        print(f"from the second signature to the router: {took:.2f} s")
        assert took < 5.0
        assert all(a.status == 200 for a in answers)
