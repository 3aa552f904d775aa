"""Release: what served is given back only after soak, a rehearsal and a second person; others' pools stay; nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleetctl.domain.capacity import Candidate, ProvisionIntent
from fleetctl.domain.fleet import Fleet, Policy
from fleetctl.domain.holds import Said
from fleetctl.domain.home import Returned
from fleetctl.domain.ids import CellId, HostId, PoolId, Token
from fleetctl.domain.people import Actor, Facts, Gap
from fleetctl.domain.plan import Approval
from fleetctl.domain.pool import Commitment, Host, Pool, PoolSpec
from fleetctl.domain.provision import Drill, ReleasePermit
from fleetctl.domain.release import Release, ReleaseView
from fleetctl.domain.units import Money
from fleetctl.errors import FleetctlError, LeaseHeld, PlanStale, ProvisionFailed, StillPending
from fleetctl.usecases.capacity import CapacityPorts, PoolHosts
from fleetctl.usecases.release import ReleasePorts, approve_release, ask, destroy, hand_over, rehearsed, verify, view
from fleetctl.views.release import handoff_text, release_lines, verified_lines
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import FakeCloud
from tests.fakes.configurator import FakeConfigurator
from tests.fakes.provisioner import FakeProvisioner
from tests.fakes.store import MemoryStore
from tests.rollouts import CELL, rollout

OURS, THEIRS, AMD = PoolId("nvidia-lab"), PoolId("h100-old"), PoolId("mi300x-lab")
ADA, GRACE = Actor(kind="person", name="ada"), Actor(kind="person", name="grace")


def _pool(id_: PoolId, by: str, sku: str) -> Pool:
    return Pool(id=id_, vendor="nvidia", sku=sku, region="lab", count=2, limit=2, provisioned_by=by)


def _fleet(approvals: int = 1, source: PoolId = OURS, target: PoolId | None = AMD) -> Fleet:
    fleet: Fleet = object.__new__(Fleet)
    router = type("Router", (), {"name": "edge"})()
    cell = type("Cell", (), {"id": CELL, "source": source, "target": target, "region": "lab", "regions": (), "router": router})()
    hosts = tuple(Host(id=HostId(f"h100-old-{n}"), pool=THEIRS, address=f"10.0.0.{n}") for n in (1, 2))
    paid = (Commitment(pool=OURS, count=1, hourly=Money(amount=Decimal(1)), until="2030-01-01"),)
    given = {
        "name": "f",
        "lineage": "f1",
        "cells": (cell,),
        "hosts": hosts,
        "commitments": paid,
        "policy": Policy(steps=(), approvals=approvals),
        "pools": (_pool(OURS, "lab", "lab-h100"), _pool(THEIRS, "existing", "old-h100"), _pool(AMD, "lab", "lab-mi300x")),
    }
    for key, value in given.items():
        object.__setattr__(fleet, key, value)
    return fleet


@dataclass
class World:
    """One store, one provisioner with a pool that was made, one cloud."""

    folder: Path
    approvals: int = 1
    source: PoolId = OURS

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.cloud = FakeCloud()
        self.provisioner = FakeProvisioner()
        self.fleet = _fleet(self.approvals, self.source)
        self.shown: int | None = 10_000
        self.answers: int | None = 0
        self.seen: tuple[Facts | Gap, ...] | None = None
        self.permits: list[ReleasePermit] = []
        self.held, self.is_busy = {OURS, THEIRS}, False
        spec = PoolSpec(pool=OURS, vendor="nvidia", sku="lab-h100", region="lab", count=2, stack="lab")
        self.provisioner.apply(self.provisioner.plan((spec,), self.folder), Token(1), lambda _: None)
        self.store.put(OURS, PoolHosts(pool=OURS, hosts=self.provisioner.outputs(OURS)))
        here = Candidate(sku="lab-h100", region="lab")
        self.store.put(OURS, ProvisionIntent(pool=OURS, tag="tag-1", step="done", asked=here, place=here, at=self.clock.now(), fresh=False))

    def ports(self, actor: Actor = ADA) -> ReleasePorts:
        real = self.provisioner.destroy

        def kept(pool: PoolId, permit: ReleasePermit) -> None:
            self.permits.append(permit)
            real(pool, permit)

        maker = replace_destroy(self.provisioner, kept)
        capacity = CapacityPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            provisioner=lambda _: maker,
            configurator=FakeConfigurator(),
            holder=f"{actor.name}@here:1",
            actor=actor,
            leftovers=lambda _: self.cloud,
        )
        return ReleasePorts(
            capacity=capacity,
            run=self.folder,
            shown=lambda _: self.shown,
            answers=lambda c, p: self.answers,
            look=lambda: self.seen,
            unhold=self.unhold,
        )

    def unhold(self, pool: PoolId) -> tuple[tuple[CellId, Said], ...]:
        if self.is_busy:
            raise LeaseHeld("lease.held", "somebody is at it")
        if pool not in self.held:
            return ()
        self.held.remove(pool)
        return ((CELL, Said(kind="hold.restored", text=f"{pool}: minimum 2 again")),)

    def view(self, pool: PoolId = OURS, *, handoff: bool = False, actor: Actor = ADA) -> ReleaseView:
        return view(pool, self.fleet, self.ports(actor), handoff=handoff)

    def moved(self, ended: str = "complete") -> None:
        """Let the cell have left the pool for good, and its way home have been rehearsed."""
        r = rollout()
        self.store.start(replace(r, spec=replace(r.spec, source=self.source), ended=ended), ())  # type: ignore[arg-type]
        self.drill()

    def drill(self, **changes: object) -> None:
        home = Returned(cell=CELL, ms_to_zero=87.0, was_bp=5000, token=Token(1), source_proven=True)
        rehearsed([replace(home, **changes)], self.store, self.store, self.clock, ADA)  # type: ignore[arg-type]

    def failing(self) -> list[str]:
        return [c.detail for c in self.view().checks if not c.ok]


class _Maker:
    """The provisioner, with one of its calls exchanged."""

    def __init__(self, real: FakeProvisioner, kept: Callable[[PoolId, ReleasePermit], None]) -> None:
        self._real, self.destroy = real, kept

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def replace_destroy(real: FakeProvisioner, kept: Callable[[PoolId, ReleasePermit], None]) -> FakeProvisioner:
    return _Maker(real, kept)  # type: ignore[return-value]


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda **more: World(tmp_path, **more)


def test_what_still_serves_is_not_given_back_and_nothing_is_put_on_record(world: Callable[..., World]) -> None:
    w = world()
    with pytest.raises(StillPending) as caught:
        ask(w.view(), w.fleet, w.ports())
    assert caught.value.code == "pending.release"
    assert "traffic of chat-lab: it runs on nvidia-lab and has not moved" in caught.value.details
    assert w.store.get(Release, OURS) is None
    with pytest.raises(StillPending):
        destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert len(w.provisioner.outputs(OURS)) == 2


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda w: w.drill(source_proven=False), "the last one failed"),
        (lambda w: w.clock.advance(timedelta(days=31)), "over 30 days ago"),
        (lambda w: setattr(w, "shown", None), "its router does not answer"),
        (lambda w: setattr(w, "shown", 9_500), "its router shows 95 % on mi300x-lab, not 100 %"),
    ],
)
def test_each_proof_must_hold(spoil: Callable[[World], None], said: str, world: Callable[..., World]) -> None:
    w = world()
    w.moved()
    assert w.failing() == []
    spoil(w)
    assert any(said in text for text in w.failing())


@pytest.mark.parametrize("ended", ["", "rolled_back", "aborted", "fell_back", "lost_evidence"])
def test_soak_must_be_over(ended: str, world: Callable[..., World]) -> None:
    w = world()
    w.moved(ended)
    assert any("its soak is not over" in text for text in w.failing())


def test_going_home_must_have_been_rehearsed(world: Callable[..., World]) -> None:
    w = world()
    w.moved()
    w.store.put(CELL, Drill(at=w.clock.now(), actor=ADA, ms_to_zero=1, ok=True, cell=CellId("another")))
    assert any("never rehearsed" in text for text in w.failing())
    w.drill(was_bp=0)
    assert any("never rehearsed" in text for text in w.failing()), "a cell that was home already proves nothing"


def test_a_rehearsal_that_was_edited_or_is_told_of_nowhere_counts_as_none(world: Callable[..., World]) -> None:
    w = world()
    w.moved()
    w.clock.advance(timedelta(days=31))
    assert any("over 30 days ago" in text for text in w.failing())
    kept = w.store.get(Drill, CELL)
    assert kept is not None
    for forged in (replace(kept, at=w.clock.now()), replace(kept, ms_to_zero=1.0), replace(kept, at=w.clock.now(), detail="again")):
        w.store.put(CELL, forged)
        assert any("the audit log tells of no such one" in text for text in w.failing()), forged
    w.store.put(CELL, kept)
    w.drill()
    assert w.failing() == []
    chain = w.store._chains[CELL]
    chain[0] = replace(chain[0], text="home in 1 ms")
    assert any("the audit log of its cell does not hold" in text for text in w.failing())


def test_a_second_person_is_needed_and_whoever_asked_is_none(world: Callable[..., World]) -> None:
    w = world()
    w.moved()
    with pytest.raises(StillPending) as caught:
        ask(w.view(), w.fleet, w.ports())
    release = w.view().release
    assert f"fleetctl approve {release.id}" in caught.value.hint
    with pytest.raises(PlanStale) as author:
        approve_release(release.id, w.store, w.store, w.clock, ADA, "")
    assert author.value.code == "release.author"
    forged = Approval(plan=release.id, plan_digest=release.digest, actor=ADA, at=w.clock.now())
    w.store.put(f"{release.id}-ada", forged)
    assert w.view().missing == 1, "a row written past the command does not help"
    approve_release(release.id, w.store, w.store, w.clock, GRACE, "looked at it")
    assert w.view().is_open
    with pytest.raises(PlanStale):
        approve_release("r0123456789ab", w.store, w.store, w.clock, GRACE, "")


def test_after_all_of_it_the_pool_is_destroyed_and_swept_and_what_was_approved_is_used_up(world: Callable[..., World]) -> None:
    w = world()
    w.moved()
    w.cloud.leave("tag-1", "/disk/loose", "disk", "Succeeded")
    w.cloud.leave("tag-2", "/vm/theirs")
    with pytest.raises(StillPending):
        ask(w.view(), w.fleet, w.ports())
    approve_release(w.view().release.id, w.store, w.store, w.clock, GRACE, "")
    assert w.held == {OURS, THEIRS}, "the source's minimum is held until then"
    gone = destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert w.held == {THEIRS}
    assert [(e.kind, e.actor.name) for e in w.store.events(CELL, 0)] == [("drill.done", "ada"), ("hold.restored", "ada")]
    assert [o.id for o in gone] == ["/disk/loose"]
    assert (w.provisioner.outputs(OURS), set(w.cloud.things)) == ((), {"/vm/theirs"})
    assert {a.actor.name for a in w.permits[0].approvals} == {"ada", "grace"}
    assert "home in 87 ms" in w.permits[0].drill
    done = w.store.get(Release, OURS)
    assert done is not None
    assert done.step == "done"
    kinds = [e.kind for e in w.store.events(None, 0)]
    assert kinds == ["release.asked", "release.approved", "release.done"]
    w.clock.advance(timedelta(days=1))
    assert w.view().missing == 1, "the next release of the same pool needs its own approval"
    assert w.view().release.id != done.id


def test_a_minimum_that_somebody_is_at_is_given_back_by_the_same_command_again(world: Callable[..., World]) -> None:
    w = world(approvals=0)
    w.moved()
    w.is_busy = True
    with pytest.raises(LeaseHeld) as caught:
        destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert "fleetctl release nvidia-lab" in caught.value.hint
    assert w.store.get(Release, OURS).step == "destroying"  # type: ignore[union-attr]
    w.is_busy = False
    destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert (w.held, w.store.get(Release, OURS).step) == ({THEIRS}, "done")  # type: ignore[union-attr]


def test_a_handoff_gives_the_minimum_back_each_time_and_only_once_it_is_approved(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.moved()
    with pytest.raises(StillPending):
        hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())
    assert THEIRS in w.held
    approve_release(w.view(THEIRS, handoff=True).release.id, w.store, w.store, w.clock, GRACE, "")
    for _ in range(2):  # whatever pinned it again since
        assert [s.text for s in hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())] == ["h100-old: minimum 2 again"]
        assert THEIRS not in w.held
        w.held.add(THEIRS)


@pytest.mark.parametrize("again", [{"attempt": 2}, {"plan": "p-spring"}], ids=["retry", "new-plan"])
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_yes_to_giving_a_pool_back_says_nothing_of_the_next_migration(
    world: Callable[..., World], again: dict[str, object], carried_out: bool
) -> None:
    w = world(source=THEIRS)
    w.moved()
    with pytest.raises(StillPending):
        hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())
    january = w.view(THEIRS, handoff=True).release
    approve_release(january.id, w.store, w.store, w.clock, GRACE, "")
    if carried_out:
        hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())
        w.held.add(THEIRS)  # the next migration holds the minimum again
    w.moved("fell_back")
    r = w.store.load(CELL)
    assert r is not None
    w.store.start(replace(r, ended="complete", **again), ())  # type: ignore[arg-type]
    w.drill()
    found = w.view(THEIRS, handoff=True)
    assert (found.missing, found.approved_by, found.release.id != january.id) == (1, (), True)
    with pytest.raises(StillPending):
        hand_over(found, w.fleet, w.ports())
    assert THEIRS in w.held, "the way home is still held"
    approve_release(w.view(THEIRS, handoff=True).release.id, w.store, w.store, w.clock, GRACE, "")
    hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())
    assert THEIRS not in w.held


def test_a_destroy_that_died_goes_on_with_the_same_approval(world: Callable[..., World]) -> None:
    w = world()
    w.moved()
    with pytest.raises(StillPending):
        ask(w.view(), w.fleet, w.ports())
    approve_release(w.view().release.id, w.store, w.store, w.clock, GRACE, "")
    w.provisioner.locked_by = "somebody"
    with pytest.raises(ProvisionFailed):
        destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert w.store.get(Release, OURS).step == "destroying"  # type: ignore[union-attr]
    w.provisioner.locked_by = ""
    destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert w.provisioner.outputs(OURS) == ()


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda w: setattr(w, "shown", 0),
        lambda w: setattr(w, "shown", None),
        lambda w: w.clock.advance(timedelta(days=31)),
        lambda w: w.moved("fell_back"),
        lambda w: w.store.put(OURS, PoolHosts(pool=OURS, hosts=())),
    ],
    ids=["customers-came-home", "router-silent", "drill-too-old", "fell-back", "other-hosts"],
)
def test_what_changed_while_the_person_thought_stops_it(meanwhile: Callable[[World], None], world: Callable[..., World]) -> None:
    w = world(approvals=0)
    w.moved()
    found = w.view()
    assert found.is_open
    meanwhile(w)
    with pytest.raises((StillPending, PlanStale)):
        destroy(found, w.fleet, w.ports(), lambda _: None)
    assert (w.permits, len(w.provisioner.outputs(OURS))) == ([], 2)


def test_while_somebody_provisions_it_nothing_is_destroyed(world: Callable[..., World]) -> None:
    w = world(approvals=0)
    w.moved()
    w.store.acquire(OURS, "grace@there:2", timedelta(minutes=5))
    with pytest.raises(LeaseHeld):
        destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert len(w.provisioner.outputs(OURS)) == 2


def test_a_release_that_slept_while_another_took_over_sweeps_nothing_more(world: Callable[..., World]) -> None:
    w = world(approvals=0)
    w.moved()
    w.cloud.leave("tag-1", "/disk/loose", "disk", "Succeeded")
    real = w.provisioner.destroy

    def slow(pool: PoolId, permit: ReleasePermit) -> None:
        real(pool, permit)
        w.clock.advance(timedelta(hours=3))
        w.store.acquire(OURS, "grace@there:2", timedelta(minutes=5))

    w.provisioner.destroy = slow  # type: ignore[method-assign]
    with pytest.raises(LeaseHeld):
        destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert w.cloud.removed == []


def test_what_cannot_be_swept_is_told(world: Callable[..., World]) -> None:
    w = world(approvals=0)
    w.moved()
    w.cloud.leave("tag-1", "/vm/stuck")
    w.cloud.remove = lambda one: None  # type: ignore[method-assign]
    with pytest.raises(ProvisionFailed) as caught:
        destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert (caught.value.code, caught.value.details) == ("release.not_gone", ("/vm/stuck",))


def test_a_pool_that_never_served_needs_one_person(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    found = w.view()
    assert (found.release.role, found.is_open) == ("unused", True)
    destroy(found, w.fleet, w.ports(), lambda _: None)
    assert w.provisioner.outputs(OURS) == ()


@pytest.mark.parametrize("answers", [None, 1, 40])
@pytest.mark.parametrize("role", ["source", "target"])
def test_a_pool_with_answers_that_may_still_be_open_is_kept(role: str, answers: int | None, world: Callable[..., World]) -> None:
    w = world() if role == "source" else world(source=THEIRS)
    w.moved("complete" if role == "source" else "rolled_back")
    if role == "target":
        w.shown = 0
    w.answers = answers
    pool = OURS if role == "source" else AMD
    found = w.view(pool)
    said = "answers may still be open there" if answers else "does not tell whether answers are still open"
    assert [said in c.detail for c in found.checks if not c.ok] == [True]
    with pytest.raises(StillPending) as pending:
        ask(found, w.fleet, w.ports())
    assert said in " ".join(pending.value.details)
    w.answers = 0
    assert all(c.ok for c in w.view(pool).checks)


@pytest.mark.parametrize(("shown", "ended", "said"), [(1000, "", "serves 10 %"), (0, "", "on its way"), (None, "", "does not answer")])
def test_a_target_with_customers_or_on_its_way_is_kept(shown: int | None, ended: str, said: str, world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.shown = shown
    w.moved(ended)
    assert any(said in c.detail for c in w.view(AMD).checks if not c.ok)


def test_a_target_that_its_cells_have_left_may_go(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.shown = 0
    w.moved("rolled_back")
    assert [c.ok for c in w.view(AMD).checks] == [True]


def test_others_pools_are_never_destroyed(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.moved()
    with pytest.raises(ProvisionFailed) as caught:
        w.view(THEIRS)
    assert (caught.value.code, "--handoff" in caught.value.hint) == ("release.not_ours", True)
    with pytest.raises(ProvisionFailed) as ours:
        w.view(OURS, handoff=True)
    assert ours.value.code == "release.ours"
    with pytest.raises(ValueError, match="never destroyed by us"):
        destroy(replace(w.view(THEIRS, handoff=True), missing=0), w.fleet, w.ports(), lambda _: None)
    assert w.permits == []


def test_a_handoff_is_written_when_all_is_proven_and_verified_by_what_sources_see(world: Callable[..., World]) -> None:
    w = world(source=THEIRS, approvals=0)
    with pytest.raises(StillPending):
        hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())
    w.moved()
    found = w.view(THEIRS, handoff=True)
    hand_over(found, w.fleet, w.ports())
    text = handoff_text(found, w.fleet, None)
    assert "- h100-old-1, 10.0.0.1" in text
    assert "fleetctl release h100-old --handoff" in text
    release = w.view(THEIRS, handoff=True).release
    assert release.step == "handed_over"
    assert "names no source" in verify(release, w.fleet, w.ports()).blind

    def machine(**values: str) -> Facts:
        return Facts(values={"machine": "i-1", **values}, source="aws prod/us-east-1", seen_at=w.clock.now())

    for one in (
        machine(name="h100-old-1"),
        machine(address="10.0.0.2 203.0.113.1"),
        machine(pool="h100-old"),
        machine(sku="OLD-H100", region="Lab"),
    ):
        w.seen = (one,)
        assert len(verify(release, w.fleet, w.ports()).still) == 1
    w.seen = (machine(name="else", sku="old-h100", region="lab", pool="another"), Gap(scope="x", reason="403", source="aws prod/eu"))
    assert verify(release, w.fleet, w.ports()).blind == "aws prod/eu could not tell: 403"
    w.seen = w.seen[:1]
    assert verify(release, w.fleet, w.ports()).is_gone
    assert w.store.get(Release, THEIRS).step == "gone"  # type: ignore[union-attr]
    w.seen = ()
    again = w.view(THEIRS, handoff=True)
    assert (again.release.id, again.release.step) == (release.id, "gone"), "looking again changes nothing"
    assert verify(again.release, w.fleet, w.ports()).is_gone, "these were the last machines that the source saw"


def test_a_source_that_never_saw_the_machines_proves_nothing(world: Callable[..., World]) -> None:
    w = world(source=THEIRS, approvals=0)
    w.moved()
    hand_over(w.view(THEIRS, handoff=True), w.fleet, w.ports())
    w.seen = ()
    assert "no source has seen its machines" in verify(w.view(THEIRS, handoff=True).release, w.fleet, w.ports()).blind
    assert w.store.get(Release, THEIRS).step == "handed_over"  # type: ignore[union-attr]


def test_what_was_said_of_a_router_is_remembered_once_it_was_handed_over(world: Callable[..., World]) -> None:
    w = world(source=THEIRS, approvals=0)
    w.moved()
    w.shown = None
    hand_over(view(THEIRS, w.fleet, w.ports(), handoff=True, gone=["edge"]), w.fleet, w.ports())
    assert w.view(THEIRS, handoff=True).is_open
    assert w.view(THEIRS, handoff=True).release.gone == ("edge",)


def test_it_is_told_within_80_columns_and_hostile_names_drive_no_terminal(world: Callable[..., World]) -> None:
    w = world()
    w.moved("rolled_back")
    lines = release_lines(w.view(), w.fleet, None)
    assert max(map(len, lines)) <= 80
    assert lines[:2] == ("pool/nvidia-lab: 2 hosts of lab-h100 in lab", "  cells ran on it")
    assert any(line.startswith("  not yet traffic of chat-lab: its soak is not over") for line in lines)
    assert any("stay paid for until 2030-01-01" in line for line in lines)
    bad = verify(replace(w.view().release), w.fleet, w.ports())
    assert verified_lines(bad, "p")[0].startswith("pool/p: not proven gone")
    w.seen = (Facts(values={"machine": "i", "name": "a\x1b[2J", "pool": OURS}, source="s", seen_at=w.clock.now()),)
    assert "\x1b" not in "\n".join(verified_lines(verify(w.view().release, w.fleet, w.ports()), "p"))


def test_errors_are_fleetctl_s_own() -> None:
    assert issubclass(StillPending, FleetctlError)
    assert StillPending.exit_code == 8


def test_machines_that_were_made_and_never_handed_out_are_told_before_they_go(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.store.put(OURS, PoolHosts(pool=OURS, hosts=()))
    w.cloud.leave("tag-1", "/vm/nvidia-lab-1", state="Succeeded")
    w.cloud.leave("tag-1", "/vm/nvidia-lab-2\x1b[2J", state="Succeeded")
    w.cloud.leave("tag-1", "/disk/nvidia-lab-1", kind="disk")
    found = w.view()
    assert found.standing == ("nvidia-lab-1", "nvidia-lab-2\x1b[2J")
    text = "\n".join(release_lines(found, w.fleet, None))
    assert "made and never handed out, destroyed too: nvidia-lab-1" in text
    assert "\x1b" not in text
    w.cloud.down = True
    assert w.view().standing == (), "a cloud that does not answer hides no check"


def test_what_no_state_knows_and_stands_in_the_way_of_a_destroy_goes_first(world: Callable[..., World]) -> None:
    """As azurerm does, which keeps a resource group that still holds something."""
    w = world(approvals=0)
    w.moved()
    w.cloud.leave("tag-1", "/rg/providers/c/vm-9", "machine", "Creating")
    w.cloud.leave("another", "/rg/providers/c/vm-8", "machine", "Succeeded")
    real = w.provisioner.destroy

    def destroy_once(pool: PoolId, permit: ReleasePermit) -> None:
        if "/rg/providers/c/vm-9" in w.cloud.things:
            raise ProvisionFailed("provision.destroy_failed", "the Resource Group still contains Resources.", hint="")
        real(pool, permit)

    w.provisioner.destroy = destroy_once  # type: ignore[method-assign]
    gone = destroy(w.view(), w.fleet, w.ports(), lambda _: None)
    assert [o.id for o in gone] == ["/rg/providers/c/vm-9"]
    assert (w.provisioner.outputs(OURS), set(w.cloud.things)) == ((), {"/rg/providers/c/vm-8"})


@pytest.mark.parametrize("width", [60, 80, 100])
def test_every_line_of_a_release_keeps_within_the_terminal(width: int, world: Callable[..., World]) -> None:
    w = world()
    lines = release_lines(w.view(), w.fleet, Decimal(12), width=width)
    assert max(len(line) for line in lines if "saves" not in line) <= width


@pytest.mark.parametrize(
    ("target", "shown", "is_open"),
    [(OURS, 500, False), (None, 500, False), (AMD, 500, True), (OURS, 0, True), (OURS, None, False), (None, None, False)],
)
def test_what_another_workspace_serves_from_a_pool_is_not_given_back_by_this_one(
    target: PoolId | None, shown: int | None, is_open: bool, world: Callable[..., World]
) -> None:
    """Both share the state, but no store: the router is what both can ask."""
    w = world(source=THEIRS)
    w.fleet = _fleet(source=THEIRS, target=target)
    w.shown = shown
    assert w.view().is_open is is_open
    assert any("may serve" in c.detail for c in w.view().checks) is not is_open


def test_a_silent_router_may_serve_until_a_person_says_that_it_is_gone(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.fleet, w.shown = _fleet(source=THEIRS, target=OURS), None
    with pytest.raises(StillPending) as caught:
        ask(w.view(), w.fleet, w.ports())
    assert "router edge: it does not answer, and may serve a cell from nvidia-lab." in caught.value.details[0]
    assert caught.value.details[0].endswith("--router-gone edge")

    said = view(OURS, w.fleet, w.ports(), handoff=False, gone=["edge"])
    assert said.is_open
    assert said.release.digest != w.view().release.digest, "an approval is for what was said too"
    w.shown = 500
    with pytest.raises(StillPending):
        destroy(said, w.fleet, w.ports(), lambda _: None)
    w.shown = None
    destroy(said, w.fleet, w.ports(), lambda _: None)
    assert w.provisioner.outputs(OURS) == ()
    done = [e for e in w.store.events(None, 0) if e.kind == "release.done"]
    assert [e.data["routers_gone"] for e in done] == ["edge"]


@pytest.mark.parametrize(("pool", "source", "ended"), [(OURS, OURS, "complete"), (AMD, THEIRS, "rolled_back")])
def test_a_router_that_is_said_to_be_gone_keeps_no_pool_whose_cells_have_left(
    pool: PoolId, source: PoolId, ended: str, world: Callable[..., World]
) -> None:
    w = world(source=source, approvals=0)
    w.moved(ended)
    w.shown = None
    assert not w.view(pool).is_open
    assert view(pool, w.fleet, w.ports(), handoff=False, gone=["edge"]).is_open
    assert not view(pool, w.fleet, w.ports(), handoff=False, gone=["another"]).is_open


def test_a_pool_that_this_workspace_never_made_is_not_called_destroyed(world: Callable[..., World]) -> None:
    w = world(source=THEIRS)
    w.shown = 0
    with pytest.raises(ProvisionFailed) as caught:
        destroy(w.view(AMD), w.fleet, w.ports(), lambda _: None)
    assert caught.value.code == "release.unknown"
    assert "run there: fleetctl release mi300x-lab" in caught.value.hint
