"""Approvals signed with real SSH keys: the key says who it was; what is forged, ended, revoked or one's own counts for nothing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetctl.adapters.signing import ALLOWED, NAMESPACE, REVOKED, SshSignatures, read_signers
from fleetctl.cli.main import cli
from fleetctl.domain.canonical import digest
from fleetctl.domain.ids import PlanId
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval, Plan
from fleetctl.domain.rebalance import StandingApproval
from fleetctl.domain.release import ReleaseView
from fleetctl.domain.units import Instant
from fleetctl.errors import ConfigInvalid, CredentialsMissing, FleetctlError, PlanStale, StillPending
from fleetctl.usecases.approve import approve
from fleetctl.usecases.migrate import approved_plan
from fleetctl.usecases.plan import PlanPorts, plan
from fleetctl.usecases.proof import Proof, check_signatures, of_plan, statement
from fleetctl.usecases.rebalance_apply import sign, standing_approval, withdraw
from fleetctl.usecases.release import ReleasePorts, approve_release, ask, destroy, view
from tests.cases.planning_fleet import ANA, cell, lab_fleet, lab_policy, pool, workload
from tests.fakes.clock import FakeClock
from tests.fakes.small import KnownCapacity
from tests.fakes.store import MemoryStore
from tests.lab.people import allowed_line, make_keys
from tests.unit.test_release import OURS
from tests.unit.test_release import World as ReleaseWorld

pytestmark = pytest.mark.lab
PEOPLE = ("ada", "bob", "eve", "zed")
"""zed has a key, but is none of the allowed signers."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a key per person."""
    return make_keys(tmp_path_factory.mktemp("keys"), PEOPLE)


class World:
    """A project of two people and more, a fleet that asks for signatures, and a plan."""

    def __init__(self, folder: Path, keys: Path, *, author: str = "ada", approvals: int = 1) -> None:
        self.folder, self.keys = folder, keys
        (folder / ALLOWED).write_text("# who may sign\n" + "".join(allowed_line(keys, n) for n in PEOPLE[:3]))
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.fleet = lab_fleet(
            pools=(pool("nvidia-lab", "nvidia", "lab-nvidia"), pool("amd", "amd", "lab-mi300x", count=0, limit=9, by="x")),
            workloads=(workload("a", replicas=2),),
            cells=(cell("a-lab", "a"),),
            policy=replace(lab_policy(approvals=approvals), require_signatures=True),
        )
        ports = PlanPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            capacity=KnownCapacity({"lab-mi300x": 9}),
            actor=ANA,
            proof=self.proof(author) if author else None,
        )
        self.plan = plan(self.fleet, ports)

    def proof(self, who: str) -> Proof:
        return Proof(signatures=SshSignatures(self.folder, self.keys / who), clock=self.clock)

    def approve(self, who: str, **more: timedelta) -> int:
        claimed = Actor(kind="person", name="bob")  # what USER says: it counts for nothing
        return approve(self.plan.id, self.fleet, self.store, self.store, self.clock, claimed, "", self.proof(who), **more)[2]

    def run(self) -> Plan:
        return approved_plan(self.store, self.fleet, self.plan.id, self.proof("zed"))

    def kept(self, who: str) -> Approval:
        found = self.store.get(Approval, f"{self.plan.id}-{who}")
        assert found is not None
        return found

    def put(self, a: Approval) -> None:
        self.store.put(f"{self.plan.id}-{a.actor.name}", a)

    def why(self) -> str:
        """Return why the plan may not run."""
        with pytest.raises(PlanStale) as e:
            self.run()
        assert e.value.code == "plan.unapproved"
        assert f"fleetctl approve {self.plan.id}" in e.value.hint
        return "; ".join(e.value.details)

    def check(self) -> tuple[str, ...]:
        return check_signatures(self.store, self.store.events(None, 0), self.proof("zed")).faults


@pytest.fixture
def w(tmp_path: Path, keys: Path) -> World:
    return World(tmp_path, keys)


def test_a_second_person_approves_and_the_key_says_who(w: World) -> None:
    assert "ada" not in w.why()
    assert w.approve("bob") == 0
    assert w.run() == w.plan
    given = w.kept("bob")
    assert given.actor.name == "bob"
    assert (given.cells, given.serial, given.plan_digest) == (("a-lab",), w.fleet.serial, digest(w.plan))
    assert w.check() == ()
    assert w.approve("bob") == 0
    assert len([e for e in w.store.events(None, 0) if e.kind == "plan.approved"]) == 1, "again is no second approval"


def test_the_author_is_no_second_person(w: World) -> None:
    with pytest.raises(PlanStale, match=r"ada made plan .* somebody else") as e:
        w.approve("ada")
    assert e.value.code == "approve.author"
    assert of_plan(w.plan, w.fleet, w.store, w.proof("zed")).authors == ("ada",)


def test_an_author_who_proves_nothing_costs_one_more_person(tmp_path: Path, keys: Path) -> None:
    w = World(tmp_path, keys, author="")
    assert w.approve("ada") == 1
    w.why()
    assert w.approve("bob") == 0
    w.run()


def test_a_person_with_two_keys_is_one_person(tmp_path: Path, keys: Path) -> None:
    w = World(tmp_path, keys, approvals=2)
    (w.folder / ALLOWED).write_text("".join(allowed_line(keys, n) for n in PEOPLE[:2]) + allowed_line(keys, "bob", of="eve"))
    assert w.approve("bob") == 1
    assert w.approve("eve") == 1
    w.why()


def _other_namespace(w: World, a: Approval) -> Approval:
    argv = ["ssh-keygen", "-Y", "sign", "-q", "-n", "file", "-f", str(w.keys / "bob")]
    done = subprocess.run(argv, input=statement(a), capture_output=True, check=True)
    return replace(a, signature=done.stdout.decode())


FORGED: dict[str, tuple[Callable[[World, Approval], Approval], str]] = {
    "another name": (lambda w, a: replace(a, actor=replace(a.actor, name="eve")), "eve: "),
    "another end": (lambda w, a: replace(a, until=(a.until or a.at) + timedelta(days=99)), "bob: it was signed for another text"),
    "more cells": (lambda w, a: replace(a, cells=(*a.cells, *a.cells)), "bob: it was signed for another text"),
    "another note": (lambda w, a: replace(a, note="and the others"), "bob: it was signed for another text"),
    "no signature": (lambda w, a: replace(a, signature=""), "bob: it is not signed"),
    "no end": (lambda w, a: replace(a, until=None), "bob: it says no end"),
    "rubbish": (lambda w, a: replace(a, signature="-----BEGIN SSH SIGNATURE-----\nAAAA\n"), "bob: "),
    "endless": (lambda w, a: replace(a, signature="A" * 99_999), "bob: it is no signature of a person"),
    "a stranger": (lambda w, a: replace(a, actor=replace(a.actor, name="zed")), "zed: zed is none of the allowed signers"),
    "an option": (lambda w, a: replace(a, actor=replace(a.actor, name="-O")), "-O is none of the allowed signers"),
    "namespace": (_other_namespace, "another namespace"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_what_is_forged_approves_nothing_and_the_audit_finds_it(w: World, kind: str) -> None:
    w.approve("bob")
    forge, why = FORGED[kind]
    good = w.kept("bob")
    bad = forge(w, good)
    w.put(bad)
    if bad.actor.name != "bob":
        w.store.put(f"{w.plan.id}-bob", replace(good, plan=PlanId("p-gone"), signature=""))
    assert why in w.why()
    assert len(w.check()) == bool(bad.signature)


def test_a_good_signature_of_another_plan_is_no_approval(w: World) -> None:
    w.approve("bob")
    w.put(replace(w.kept("bob"), plan_digest=digest("another")))
    with pytest.raises(PlanStale, match="not the one that was approved"):
        w.run()


def test_an_approval_ends_and_can_be_given_again(w: World) -> None:
    w.approve("bob", holds_for=timedelta(hours=1))
    w.clock.advance(timedelta(hours=1))
    assert "bob: it ended on" in w.why()
    assert w.check() == (), "it was good when it was given"
    assert w.approve("bob") == 0
    w.run()


def test_a_key_that_has_expired_or_is_revoked_counts_no_more(w: World) -> None:
    w.approve("bob")
    kept = (w.folder / ALLOWED).read_text()
    day = f"{w.clock.now() + timedelta(days=2):%Y%m%d}"
    (w.folder / ALLOWED).write_text(kept.replace("bob ", f'bob valid-before="{day}" '))
    w.run()
    w.clock.advance(timedelta(days=3))
    assert "bob: its key has expired" in w.why()
    assert w.check() == (), "a key that ended leaves its past"
    with pytest.raises(PlanStale, match="its key has expired"):
        w.approve("bob")
    (w.folder / ALLOWED).write_text(kept)
    w.run()
    (w.folder / REVOKED).write_text((w.keys / "bob.pub").read_text())
    assert "bob: its key is revoked" in w.why()
    assert "its key is revoked" in w.check()[0], "a revoked one does not"


def test_somebody_without_a_key_or_unknown_is_told_what_to_do(w: World) -> None:
    for who, code in (("zed", "approve.unknown_key"), ("nobody", "approve.no_key")):
        with pytest.raises(CredentialsMissing) as e:
            w.approve(who)
        assert e.value.code == code
        assert "signing_key" in e.value.hint
    assert w.store.all(Approval) == (w.store.get(Approval, f"{w.plan.id}-author-ada"),)


def test_without_anything_that_can_check_nobody_counts(w: World) -> None:
    w.approve("bob")
    with pytest.raises(PlanStale, match="0 of 2"):
        approved_plan(w.store, w.fleet, w.plan.id)


def test_a_record_that_the_log_does_not_tell_of_is_found(w: World) -> None:
    w.approve("bob")
    own = w.kept("bob")
    again = replace(own, note="put in its place")
    w.put(replace(again, signature=SshSignatures(w.folder, w.keys / "bob").sign(statement(again))))
    assert w.check() == (f"{w.plan.id} by bob: the log tells of no such approval",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "name nobody"),
        ("*  ssh-ed25519 AAAA\n", "not one person's"),
        ("ada,bob ssh-ed25519 AAAA\n", "not one person's"),
        ("ada cert-authority ssh-ed25519 AAAA\n", "certificate authority"),
        ("ada ssh-ed25519 AAAA\nbob ssh-ed25519 AAAA\n", "one key is one person's"),
        ("ada\n", "not NAME"),
    ],
)
def test_allowed_signers_that_say_no_one_person_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / ALLOWED).write_text(text)
    with pytest.raises(ConfigInvalid) as e:
        read_signers(tmp_path / ALLOWED)
    assert why in f"{e.value.message} {e.value.details}"
    assert "two-people" in e.value.hint


def _terms(w: World) -> StandingApproval:
    return StandingApproval(
        id="", lineage=w.fleet.lineage, moves=1, window=timedelta(days=7), share=0.1, classes=("online",), until="2099-01-01"
    )


def test_a_standing_approval_is_signed_by_two(w: World) -> None:
    def signed(who: str) -> tuple[StandingApproval, int]:
        return sign(_terms(w), w.fleet, w.store, w.store, ANA, w.clock.now(), w.proof(who))

    def holds(at: Instant) -> StandingApproval:
        return standing_approval(w.store, w.fleet, "", at, w.proof("zed"))

    made, more = signed("ada")
    assert more == 1
    with pytest.raises(PlanStale, match="1 of 2 people"):
        holds(w.clock.now())
    again, more = signed("bob")
    assert (again.id, more) == (made.id, 0)
    assert holds(w.clock.now()) == again
    w.store.put(again.id, replace(again, moves=99))
    with pytest.raises(PlanStale, match="0 of 2 people"):
        holds(w.clock.now())
    w.store.put(again.id, again)
    _stands_under(w, again)
    withdraw(made.id, w.store, w.store, ANA, w.clock.now())
    assert signed("eve")[1] == 1, "who signed before it was withdrawn must sign again"


def _stands_under(w: World, terms: StandingApproval) -> None:
    """A schedule's plan stands under signed terms, and only within them."""
    yes = Approval(plan=w.plan.id, plan_digest=digest(w.plan), actor=ANA, at=w.clock.now(), standing=terms.id)
    w.put(yes)
    klass = w.fleet.workloads[0].klass
    if klass in terms.classes:
        w.run()
    else:
        assert "no class that may move" in w.why()
    w.put(replace(yes, standing="s0"))
    assert "no such standing approval" in w.why()


def test_the_command_line_says_how_the_name_is_known(tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole project: init, plan by ada, approve by bob, audit; with and without the policy."""
    monkeypatch.setenv("USER", "mallory")

    def run(who: str, *words: str) -> tuple[int, str]:
        monkeypatch.setenv("FLEETCTL_SIGNING_KEY", str(keys / who))
        done = CliRunner().invoke(cli, ["-C", str(tmp_path), *words])
        text = done.output + (str(done.exception) if isinstance(done.exception, FleetctlError) else "")
        return done.exit_code, text

    assert run("ada", "init", "site")[0] == 0
    file = tmp_path / "inventory" / "site" / "fleet.yaml"
    file.write_text(re.sub(r"\n  # require_signatures: true.*", "\n  require_signatures: true", file.read_text()))
    (file.parent / ALLOWED).write_text("".join(allowed_line(keys, n) for n in PEOPLE[:2]))
    os.chmod(keys / "ada", 0o600)
    _, said = run("ada", "plan")
    assert "Signed as its author: ada" in said, said
    found = re.search(r"fleetctl approve (p[0-9a-f]+)", said)
    assert found is not None, said
    assert "ada made plan" in run("ada", "approve", found[1])[1]
    code, said = run("bob", "approve", found[1])
    assert (code, "approved by bob, by SSH key" in said) == (0, True), said
    code, said = run("bob", "audit", "verify")
    assert (code, "ok: 2 signatures" in said) == (0, True), said
    assert NAMESPACE == "fleetctl-approve"
    file.write_text(file.read_text().replace("require_signatures: true", "require_signatures: false"))
    _, said = run("bob", "plan")
    found = re.search(r"fleetctl approve (p[0-9a-f]+)", said)
    assert found is not None
    code, said = run("bob", "approve", found[1])
    assert (code, "mallory made plan" in said, "policy.approvals: 0" in said) == (1, True, True), said
    code, said = run("bob", "migrate", "--phase", "canary")
    assert (code, "has 0 of 1 approvals" in said) == (1, True), said
    monkeypatch.setenv("FLEETCTL_ACTOR", "grace")
    code, said = run("bob", "approve", found[1])
    assert (code, "approved by grace (" in said, "Names are not proven" in said) == (0, True, True), said
    code, said = run("bob", "audit", "verify")
    assert (code, "1 approval by names that are not proven" in said) == (0, True), said


def test_a_release_is_signed_by_somebody_else_than_who_asked(w: World) -> None:
    r = ReleaseWorld(w.folder)
    object.__setattr__(r.fleet, "policy", replace(r.fleet.policy, require_signatures=True))
    object.__setattr__(r.fleet, "serial", 3)
    r.moved()

    def ports(who: str) -> ReleasePorts:
        return replace(r.ports(), proof=replace(w.proof(who), clock=r.clock))

    def seen(who: str = "zed") -> ReleaseView:
        return view(OURS, r.fleet, ports(who), handoff=False)

    with pytest.raises(StillPending, match="1 more person"):
        ask(seen("ada"), r.fleet, ports("ada"))
    id_ = seen().release.id
    with pytest.raises(PlanStale, match="ada made release"):
        approve_release(id_, r.store, r.store, r.clock, ANA, "", r.fleet, ports("ada").proof)
    r.store.put(f"{id_}-bob", Approval(plan=id_, plan_digest=seen().release.digest, actor=ANA, at=r.clock.now()))
    assert seen().missing == 1, "a row written past the key does not help"
    approve_release(id_, r.store, r.store, r.clock, ANA, "", r.fleet, ports("bob").proof)
    assert (seen().missing, seen().approved_by) == (0, ("bob",))
    destroy(seen("ada"), r.fleet, ports("ada"), lambda _: None)
    assert [a.actor.name for a in r.permits[0].approvals] == ["bob", "ada"]
