"""Provision: the saga: places in order, leftovers removed, quota and throttling, reruns from every step, nothing held is touched."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from fleetctl.domain.capacity import Candidate, Leftover, PlaceFailure, ProvisionIntent, QuotaRow, SkuReading
from fleetctl.domain.fleet import Fleet
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure, ProvisionPlan
from fleetctl.errors import CapacityUnavailable, CredentialsMissing, Interrupted, LeaseHeld, PlanStale, ProvisionFailed, ToolMissing
from fleetctl.usecases.capacity import POOL_TTL, CapacityPorts, PoolHosts, ProvisionOutcome
from fleetctl.usecases.provision import provision
from fleetctl.usecases.provision_causes import explained, unfinished
from fleetctl.views.provision import outcome_lines, plan_lines, unfinished_lines
from tests.cases import provision_refusals as corpus
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import FakeCloud, RefusingProvisioner
from tests.fakes.configurator import FakeConfigurator
from tests.fakes.store import MemoryStore

POOL = PoolId("mi300x-a")
SPEC = PoolSpec(pool=POOL, vendor="amd", sku="lab-mi300x", region="lab", count=2, stack="lab", zone="1")
FIRST = Candidate(sku="lab-mi300x", region="lab", zone="1")
SECOND = replace(FIRST, zone="2")
AWAY = Candidate(sku="lab-mi300x", region="far")
TEXT = {r.code: f"{r.code}: {r.message}" for r in (*corpus.AZURE, *corpus.AWS)}


class _Stopped(BaseException):
    """Stands for a kill -9: nothing of the use case may catch it."""


@dataclass
class World:
    """One store, one cloud, one provisioner; `run` is one run of fleetctl."""

    folder: Path
    refusals: list[str] = field(default_factory=list)
    spec: PoolSpec = SPEC
    places: tuple[Candidate, ...] = (FIRST, SECOND, AWAY)
    readings: dict[str, SkuReading] = field(default_factory=dict)
    stop_at: str = ""
    number: int = 0
    more: tuple[PoolSpec, ...] = ()
    keeps: bool = True

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.cloud = FakeCloud()
        self.provisioner = RefusingProvisioner(self.cloud, self.refusals)
        self.shown: list[tuple[PoolSpec, ProvisionPlan, Decimal | None]] = []
        self.steps: list[str] = []

    def run(self, *, apply: bool = True) -> ProvisionOutcome:
        self.number += 1
        return provision(self._plan(), _fleet(), self.folder / str(self.number), self.ports(), lambda _: None, apply=apply)[0]

    def ports(self) -> CapacityPorts:
        holder = f"ada@here:{self.number}"
        return CapacityPorts(
            store=self.store,
            records=self.store,
            clock=self.clock,
            provisioner=lambda _: self.provisioner,
            configurator=FakeConfigurator(),
            holder=holder,
            actor=Actor(kind="person", name="ada"),
            leftovers=lambda _: self.cloud,
            places=lambda _: self.places,
            keeps=lambda _: self.keeps,
            source=(lambda _: self) if self.readings else (lambda _: None),
            price=lambda _: Decimal("48.00"),
            shown=lambda *row: self.shown.append(row),
            reached=self._reached,
            is_gone=lambda h: h != holder,
        )

    def read(self, sku: str, region: str) -> SkuReading:
        """Answer as a capacity source."""
        return self.readings[region]

    def _plan(self) -> Plan:
        plan: Plan = object.__new__(Plan)
        object.__setattr__(plan, "pools", (self.spec, *self.more))
        return plan

    def _reached(self, step: str) -> None:
        self.steps.append(step)
        if step == self.stop_at:
            self.stop_at = ""
            raise _Stopped

    @property
    def intent(self) -> ProvisionIntent:
        found = self.store.get(ProvisionIntent, POOL)
        assert found is not None
        return found


def _fleet() -> Fleet:
    fleet: Fleet = object.__new__(Fleet)
    object.__setattr__(fleet, "cells", ())
    object.__setattr__(fleet, "lineage", "f1")
    return fleet


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda *refusals, **more: World(tmp_path, list(refusals), **more)


def test_a_good_run_records_the_intent_first_shows_then_applies_then_is_done(world: Callable[..., World]) -> None:
    w = world()
    outcome = w.run()
    assert w.steps == ["intent", "planned", "applied", "done"]
    assert [h.id for h in outcome.hosts] == ["mi300x-a-1", "mi300x-a-2"]
    assert outcome.usd_per_hour == Decimal("96.00")
    assert len(w.shown) == 1
    assert (w.intent.step, w.intent.place, w.intent.digest) == ("done", FIRST, w.shown[0][1].digest)
    assert w.run().done is None
    assert len(w.provisioner.tried) == 1


def test_the_tag_is_unique_and_stays_over_reruns(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    tag = w.intent.tag
    w.run()
    assert w.intent.tag == tag
    assert re.fullmatch("f1-mi300x-a-1-[0-9a-f]{8}", tag)
    assert {s.intent for s in w.provisioner.tried} == {tag}


@pytest.mark.parametrize(
    ("code", "next_place"),
    [
        ("ZonalAllocationFailed", SECOND),
        ("OverconstrainedZonalAllocationRequest", SECOND),
        ("SkuNotAvailable", AWAY),
        ("AllocationFailed", AWAY),
        ("InsufficientInstanceCapacity", SECOND),
        ("UnfulfillableCapacity", SECOND),
        ("VcpuLimitExceeded", AWAY),
    ],
)
def test_each_refusal_leads_to_the_next_place_that_it_leaves_open(code: str, next_place: Candidate, world: Callable[..., World]) -> None:
    w = world(TEXT[code])
    outcome = w.run()
    assert outcome.place == next_place
    assert [a.code for a in outcome.attempts] == [code]
    assert w.cloud.things == {}
    remembered = w.store.all(PlaceFailure)
    assert [(f.place, f.code) for f in remembered] == [(FIRST, code)]
    assert remembered[0].until > w.clock.now()


def test_the_failed_machine_is_removed_before_the_next_place_is_tried(world: Callable[..., World]) -> None:
    w = world(TEXT["AllocationFailed"])
    w.run()
    assert w.cloud.removed == ["/vm/new-1"]
    assert w.steps == ["intent", "planned", "applied", "compensating", "compensated", "planned", "applied", "done"]


def test_whoever_watches_is_told_why_a_place_is_left_before_the_next_is_tried(world: Callable[..., World]) -> None:
    w = world(TEXT["ZonalAllocationFailed"])
    seen: list[Progress] = []
    provision(w._plan(), _fleet(), w.folder / "1", w.ports(), seen.append)
    (refused,) = [p for p in seen if p.step == "refused"]
    assert (refused.subject, refused.state, refused.text) == (FIRST.text, "failed", "ZonalAllocationFailed")


def test_a_remembered_failure_is_not_tried_again_until_its_time_is_over(world: Callable[..., World]) -> None:
    w = world(TEXT["ZonalAllocationFailed"], "boom")
    with pytest.raises(ProvisionFailed):
        w.run()
    w.run()
    assert [s.zone for s in w.provisioner.tried] == ["1", "2", "2"]


def test_every_place_refused_ends_with_every_try_and_nothing_left(world: Callable[..., World]) -> None:
    w = world(*[TEXT["AllocationFailed"]] * 5)
    with pytest.raises(CapacityUnavailable) as caught:
        w.run()
    assert caught.value.code == "capacity.exhausted"
    assert len(caught.value.details) == 2
    assert w.cloud.things == {}
    assert w.intent.step == "failed"


def test_what_an_overconstrained_request_blames_is_told_and_given_up_by_nobody_but_its_owner(world: Callable[..., World]) -> None:
    w = world(TEXT["OverconstrainedAllocationRequest"], places=(FIRST,))
    with pytest.raises(CapacityUnavailable) as caught:
        w.run()
    assert caught.value.code == "capacity.exhausted"
    assert caught.value.details[0].startswith("the cloud blames pool.mi300x-a.os_disk, pool.mi300x-a.sizes: change these")
    assert {(s.sku, s.zone) for s in w.provisioner.tried} == {(FIRST.sku, FIRST.zone)}


def test_a_quota_is_named_with_the_number_to_ask_for(world: Callable[..., World]) -> None:
    w = world(TEXT["OperationNotAllowed"], places=(FIRST, SECOND))
    with pytest.raises(CapacityUnavailable) as caught:
        w.run()
    assert caught.value.code == "capacity.quota"
    assert "standardNDISv5MI300XFamily Cores to at least 192" in caught.value.message
    assert len(w.provisioner.tried) == 1


def test_throttling_waits_as_told_and_tries_the_same_place(world: Callable[..., World]) -> None:
    w = world(TEXT["TooManyRequests"])
    before = w.clock.now()
    assert w.run().place == FIRST
    assert w.clock.now() - before == timedelta(seconds=17)
    assert [s.zone for s in w.provisioner.tried] == ["1", "1"]


def test_throttling_without_end_gives_up(world: Callable[..., World]) -> None:
    w = world(*[TEXT["RequestLimitExceeded"]] * 9)
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.code == "provision.throttled"
    assert len(w.provisioner.tried) == 4


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        ("AuthorizationFailed", CredentialsMissing, "credentials.refused"),
        ("VMMarketplaceInvalidInput", ProvisionFailed, "provision.apply_failed"),
    ],
)
def test_what_a_person_must_mend_is_not_repeated(code: str, kind: type, expected: str, world: Callable[..., World]) -> None:
    w = world(TEXT[code])
    with pytest.raises(kind) as caught:
        w.run()
    assert caught.value.code == expected  # type: ignore[attr-defined]
    assert len(w.provisioner.tried) == 1


def test_a_pool_with_hosts_never_moves(world: Callable[..., World]) -> None:
    w = world("", TEXT["AllocationFailed"])
    w.run()
    w.spec = replace(SPEC, count=3)
    with pytest.raises(CapacityUnavailable) as caught:
        w.run()
    assert caught.value.code == "capacity.exhausted"
    assert [s.region for s in w.provisioner.tried] == ["lab", "lab"]
    hosts = w.store.get(PoolHosts, POOL)
    assert hosts is not None
    assert len(hosts.hosts) == 2


def test_a_zone_found_by_failover_is_kept_by_later_runs(world: Callable[..., World]) -> None:
    w = world(TEXT["ZonalAllocationFailed"])
    w.run()
    again = w.run()
    assert again.place == SECOND
    assert again.shown.is_empty


def test_no_reading_allows_it_ends_before_anything_is_planned(world: Callable[..., World]) -> None:
    now = FakeClock().now()
    closed = SkuReading(sku="lab-mi300x", region="lab", offered=False, read_at=now)
    w = world(readings={"lab": closed, "far": replace(closed, region="far", offered=True, closed="NotAvailableForSubscription")})
    with pytest.raises(CapacityUnavailable) as caught:
        w.run()
    assert caught.value.code == "capacity.no"
    assert len(caught.value.details) == 3
    assert w.provisioner.tried == []


def test_the_oracle_sends_it_to_the_place_that_is_open(world: Callable[..., World]) -> None:
    now = FakeClock().now()
    closed = SkuReading(sku="lab-mi300x", region="lab", offered=True, read_at=now, zones=("1", "2"), closed_zones=("1",))
    w = world(readings={"lab": closed, "far": replace(closed, region="far", offered=False)})
    assert w.run().place == SECOND


def test_a_dry_run_changes_nothing_and_leaves_no_record(world: Callable[..., World]) -> None:
    w = world()
    outcome = w.run(apply=False)
    assert outcome.done is None
    assert not outcome.shown.is_empty
    assert (w.steps, w.shown, w.store.get(ProvisionIntent, POOL)) == ([], [], None)


def test_orphans_of_an_earlier_run_are_told_by_a_dry_run_and_removed_by_a_run(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    for id_, kind in (("/rg/x", "other"), ("/disk/d", "disk"), ("/nic/n", "card"), ("/vm/ghost", "machine")):
        w.cloud.leave(w.intent.tag, id_, kind, "Succeeded")
    w.cloud.leave("somebody-else", "/vm/theirs")
    assert len(w.run(apply=False).orphans) == 4
    assert len(w.run().removed) == 4
    assert w.cloud.removed == ["/vm/ghost", "/nic/n", "/disk/d", "/rg/x"]
    assert set(w.cloud.things) == {"/vm/theirs"}


EXISTS = (
    'azurerm_subnet.hosts\na resource with the ID "{id}" already exists - to be managed via Terraform this resource needs to be imported'
)


def test_what_a_killed_terraform_made_under_what_is_ours_is_adopted(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    w = world(EXISTS.format(id="/x/providers/net/v1/subnets/hosts"))
    adopted: list[tuple[str, str]] = []
    monkeypatch.setattr(w.provisioner, "ids", lambda _: frozenset({"/x/providers/net/v1"}))
    monkeypatch.setattr(w.provisioner, "adopt", lambda _, a, i: adopted.append((a, i)))
    assert len(w.run().hosts) == 2
    assert adopted == [("azurerm_subnet.hosts", "/x/providers/net/v1/subnets/hosts")]


def test_what_may_be_somebody_else_s_is_left_alone(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    w = world(EXISTS.format(id="/x/providers/net/v2"))
    monkeypatch.setattr(w.provisioner, "ids", lambda _: frozenset({"/x/providers/net/v1", "/x"}))
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.code == "provision.exists"
    assert w.cloud.removed == []


def test_a_host_on_record_is_never_removed_though_the_state_lost_it(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    w.cloud.leave(w.intent.tag, "/vm/mi300x-a-1", "machine", "Succeeded")
    w.cloud.leave(w.intent.tag, "/nic/loose", "card", "Succeeded")
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert (caught.value.code, caught.value.details) == ("provision.state_lost", ("/vm/mi300x-a-1",))
    assert w.cloud.removed == []


@pytest.mark.parametrize("thing", ["/x/RG", "/x/rg/providers/net/v", "/x/rg2/providers/c/virtualMachineScaleSets/s"])
@pytest.mark.parametrize("in_state", [True, False])
def test_what_the_pool_lies_in_is_never_removed_though_the_state_lost_it(
    thing: str, in_state: bool, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resource group goes with all that it holds: machines that serve, whether the state or only the record knows them."""
    w = world()
    w.run()
    inside = frozenset({"/x/rg/providers/c/vm-1", "/x/rg/providers/net/v/subnets/s"})
    if in_state:
        monkeypatch.setattr(w.provisioner, "ids", lambda _: inside)
    else:
        known = w.store.get(PoolHosts, POOL)
        assert known is not None
        hosts = tuple(replace(h, variables=(("cloud_id", i),)) for h, i in zip(known.hosts, sorted(inside), strict=True))
        w.store.put(POOL, replace(known, hosts=hosts))
    w.cloud.leave(w.intent.tag, thing, "other", "Succeeded")
    w.cloud.leave(w.intent.tag, "/x/rg/providers/c/nic-9", "card", "Succeeded")
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert (caught.value.code, caught.value.details) == ("provision.state_lost", (thing,))
    assert w.cloud.removed == []


def test_under_a_tag_of_another_workspace_only_what_failed_in_this_very_run_is_removed(tmp_path: Path) -> None:
    """Whoever shares a state shares its tag; what the other one is making right now is in no state yet."""
    ada = World(tmp_path / "a")
    ada.run()
    real = ada.provisioner.outputs
    said = (("cloud_id", "/vm/1"), ("intent", ada.intent.tag))
    grace = World(tmp_path / "g", spec=replace(SPEC, count=3))
    grace.provisioner, grace.cloud = ada.provisioner, ada.cloud
    grace.provisioner.outputs = lambda pool: tuple(replace(h, variables=said) for h in real(pool))  # type: ignore[method-assign]
    ada.cloud.leave(ada.intent.tag, "/vm/being-made", state="Creating")
    ada.cloud.leave(ada.intent.tag, "/vm/failed-before")
    ada.provisioner.refusals[:] = [TEXT["AllocationFailed"]]
    with pytest.raises(CapacityUnavailable):
        grace.run()
    assert ada.cloud.removed == ["/vm/new-2"]
    made = grace.run()
    assert [o.id for o in made.orphans] == ["/vm/being-made", "/vm/failed-before"], "told, for a person to judge"
    assert ada.cloud.removed == ["/vm/new-2"]


def test_the_disk_of_a_machine_that_the_state_knows_is_no_orphan(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    tag = w.intent.tag
    held = Leftover(id="/disk/1", kind="disk", name="1", state="attached", holder="MI300X-A-1")
    w.cloud.things["/disk/1"] = (tag, held)
    assert w.run().orphans == ()
    assert w.cloud.removed == []


@pytest.mark.parametrize("step", ["intent", "planned", "applied", "compensating", "compensated", "done"])
def test_killed_at_any_step_the_rerun_ends_the_same(step: str, world: Callable[..., World]) -> None:
    w = world(TEXT["AllocationFailed"], stop_at=step)
    with pytest.raises(_Stopped):
        w.run()
    outcome = w.run()
    assert len(outcome.hosts) == 2
    assert w.cloud.things == {}
    assert w.intent.step == "done"
    assert w.provisioner.applied == 1


def test_killed_again_in_the_rerun_it_still_knows_that_its_predecessor_was_at_work(world: Callable[..., World]) -> None:
    w = world(stop_at="planned")
    with pytest.raises(_Stopped):
        w.run()
    for _ in range(3):
        w.stop_at = "intent"
        with pytest.raises(_Stopped):
            w.run()
        assert w.intent.step == "applying"
    looks: list[PoolSpec] = []
    before = w.provisioner.plan

    def look(pools: Sequence[PoolSpec], run: Path) -> ProvisionPlan:
        looks.extend(pools)
        return before(pools, run)

    w.provisioner.plan = look  # type: ignore[method-assign,assignment]
    w.run()
    assert len(looks) == 2, "the state is looked at before anything is cleared, as a Terraform may still hold it"


def test_what_stands_already_needs_no_quota_again(world: Callable[..., World]) -> None:
    now = FakeClock().now()
    row = QuotaRow(name="family", limit=96 * 2, used=96, binds="regular")
    tight = SkuReading(sku="lab-mi300x", region="lab", offered=True, read_at=now, vcpus=96, quotas=(row,))
    w = world(readings={"lab": tight}, places=(FIRST,))
    w.provisioner.fail = {HostId("mi300x-a-2")}
    free = replace(tight, quotas=(replace(row, used=0),))
    w.readings["lab"] = free
    with pytest.raises(ProvisionFailed):
        w.run()
    w.readings["lab"] = tight
    w.cloud.leave(w.intent.tag, "mi300x-a-1", "machine", "Succeeded")
    w.provisioner.fail = set()
    assert len(w.run().hosts) == 2


@pytest.mark.parametrize(("keeps", "place", "hosts"), [(True, FIRST, 1), (False, AWAY, 2)])
def test_machines_that_were_had_are_kept_unless_the_owner_lets_them_move(
    keeps: bool, place: Candidate, hosts: int, world: Callable[..., World]
) -> None:
    w = world(keeps=keeps)
    refused = w.provisioner.apply

    def half(p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        if len(w.provisioner.tried) == 0:
            w.provisioner.fail = {HostId("mi300x-a-2")}
            made = refused(p, token, on)
            w.provisioner.fail = set()
            w.cloud.leave(w.intent.tag, "mi300x-a-1", "machine", "Succeeded")
            assert isinstance(made, ProvisionFailure)
            return replace(made, details=(TEXT["AllocationFailed"],))
        w.cloud.things.clear()
        return refused(p, token, on)

    w.provisioner.apply = half  # type: ignore[method-assign]
    if keeps:
        for _ in range(2):
            with pytest.raises(CapacityUnavailable) as caught:
                w.run()
            assert caught.value.code == "capacity.partial"
            assert "1 of 2 machines were made" in caught.value.message
            assert set(w.cloud.things) == {"mi300x-a-1"}
        w.clock.advance(timedelta(hours=2))
    assert w.run().place == place
    assert (w.intent.step, len(w.store.get(PoolHosts, POOL).hosts)) == ("done", 2)  # type: ignore[union-attr]
    assert [s.region for s in w.provisioner.tried] == (["lab", "lab"] if hosts == 1 else ["lab", "far"])


def test_a_pool_that_fails_does_not_keep_another_from_being_made(world: Callable[..., World]) -> None:
    other = replace(SPEC, pool=PoolId("h100-b"), vendor="nvidia", sku="lab-h100")
    w = world(TEXT["VMMarketplaceInvalidInput"], more=(other,))
    done: list[ProvisionOutcome] = []
    with pytest.raises(ProvisionFailed) as caught:
        provision(w._plan(), _fleet(), w.folder / "r", w.ports(), lambda _: None, done=done.append)
    assert caught.value.code == "provision.apply_failed"
    assert [(o.spec.pool, len(o.hosts)) for o in done] == [("h100-b", 2)]


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted("provision.interrupted", "applying: stopped", hint="Go on")])
def test_who_stops_a_run_is_told_what_had_failed_before(stop: BaseException, world: Callable[..., World]) -> None:
    w = world(TEXT["VMMarketplaceInvalidInput"], more=(replace(SPEC, pool=PoolId("mi300x-b")),))
    real = w.provisioner.apply

    def apply(p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        if "mi300x-b" in p.pools:
            raise stop
        return real(p, token, on)

    w.provisioner.apply = apply  # type: ignore[method-assign]
    with pytest.raises(Interrupted) as caught:
        w.run()
    assert any("mi300x-a: " in line and "VMMarketplaceInvalidInput" in line for line in caught.value.details)


def test_a_plan_that_went_stale_hides_no_other_pool_s_failure(world: Callable[..., World]) -> None:
    third = replace(SPEC, pool=PoolId("mi300x-c"))
    w = world(TEXT["VMMarketplaceInvalidInput"], more=(replace(SPEC, pool=PoolId("mi300x-b")), third))
    real = w.provisioner.apply

    def apply(p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        if "mi300x-b" in p.pools:
            raise PlanStale("provision.stale", "the state moved on", hint="Run: fleetctl provision")
        return real(p, token, on)

    w.provisioner.apply = apply  # type: ignore[method-assign]
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.code == "provision.several"
    text = "\n".join(caught.value.details)
    assert "VMMarketplaceInvalidInput" in text
    assert "the state moved on" in text
    assert len(w.provisioner.outputs(third.pool)) == 2, "the third was made"


def test_what_every_pool_fails_of_is_told_once(world: Callable[..., World]) -> None:
    w = world(more=(replace(SPEC, pool=PoolId("mi300x-b")),))

    def plan(pools: object, run: object) -> ProvisionPlan:
        raise ToolMissing("tool.terraform_missing", "no Terraform to run", hint="Install it")

    w.provisioner.plan = plan  # type: ignore[method-assign]
    with pytest.raises(ToolMissing):
        w.run()


def test_a_plan_that_prevent_destroy_stops_is_a_finding_where_it_is_only_looked_at(world: Callable[..., World]) -> None:
    w = world()
    guard = "Instance cannot be destroyed: module.pool.azurerm_linux_virtual_machine.host has lifecycle.prevent_destroy set"

    def plan(pools: object, run: object) -> ProvisionPlan:
        raise ProvisionFailed("provision.plan_failed", guard, hint="")

    w.provisioner.plan = plan  # type: ignore[method-assign]
    (seen,) = provision(w._plan(), _fleet(), w.folder / "c", w.ports(), lambda _: None, apply=False, refuse=False)
    assert [(f.severity, f.code, f.path) for f in seen.findings] == [("error", "provision.refused", POOL)]
    text = "\n".join(outcome_lines(seen, with_plan=True))
    assert "prevent_destroy" in text
    assert "as planned" not in text
    with pytest.raises(ProvisionFailed) as caught:
        w.run(apply=False)
    assert caught.value.code == "provision.refused"


def test_two_pools_that_fail_are_both_told(world: Callable[..., World]) -> None:
    w = world(TEXT["VMMarketplaceInvalidInput"], TEXT["AuthorizationFailed"], more=(replace(SPEC, pool=PoolId("mi300x-b")),))
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.code == "provision.several"
    told = "\n".join(caught.value.details)
    assert "mi300x-a: error[provision.apply_failed]" in told
    assert "mi300x-b: error[credentials.refused]" in told


def test_a_look_tells_of_a_plan_that_must_not_be_applied_beside_the_orphans_and_a_dry_run_refuses_it(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    w.cloud.leave(w.intent.tag, "/vm/ghost", "machine", "Succeeded")
    w.spec = replace(SPEC, sku="lab-other")
    with pytest.raises(ProvisionFailed) as caught:
        w.run(apply=False)
    assert caught.value.code == "provision.refused"
    (told,) = provision(w._plan(), _fleet(), w.folder / "look", w.ports(), lambda _: None, apply=False, refuse=False)
    assert {f.code for f in told.findings} == {"provision.destroys"}
    assert [o.name for o in told.orphans] == ["ghost"]
    with pytest.raises(ProvisionFailed):
        provision(w._plan(), _fleet(), w.folder / "apply", w.ports(), lambda _: None, refuse=False)
    assert len(w.provisioner.tried) == 1, "an apply is refused whatever was said"


def test_a_try_that_did_not_end_is_told_though_the_plan_makes_the_pool_no_more(world: Callable[..., World]) -> None:
    w = world(TEXT["VMMarketplaceInvalidInput"])
    with pytest.raises(ProvisionFailed):
        w.run()
    assert unfinished(w._plan(), w.store) == (), "its own plan's next run looks for it"
    w.spec = replace(SPEC, pool=PoolId("mi300x-b"))
    (lost,) = unfinished(w._plan(), w.store)
    told = unfinished_lines((lost,))
    assert (lost.pool, max(map(len, told)) <= 80) == (POOL, True)
    assert "fleetctl release mi300x-a" in " ".join(" ".join(told).split())
    w.spec = SPEC
    w.run()
    w.spec = replace(SPEC, pool=PoolId("mi300x-b"))
    assert unfinished(w._plan(), w.store) == ()


def test_hosts_that_only_the_outputs_lack_are_shown_and_written_down(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    w.store.put(POOL, PoolHosts(pool=POOL, hosts=()))
    w.provisioner._states[POOL].named = ()
    real = w.provisioner.plan
    w.provisioner.plan = lambda pools, run: replace(real(pools, run), outputs_change=True)  # type: ignore[method-assign]
    outcome = w.run()
    assert len(w.shown) == 2
    assert outcome.shown.is_empty
    assert [h.id for h in w.store.get(PoolHosts, POOL).hosts] == ["mi300x-a-1", "mi300x-a-2"]  # type: ignore[union-attr]
    assert "~ which hosts these are" in "\n".join(plan_lines(*w.shown[1]))


def test_only_the_named_pool_is_made(world: Callable[..., World]) -> None:
    w = world(more=(replace(SPEC, pool=PoolId("mi300x-b")),))
    made = provision(w._plan(), _fleet(), w.folder / "r", w.ports(), lambda _: None, only=(PoolId("mi300x-b"),))
    assert [o.spec.pool for o in made] == ["mi300x-b"]


def test_a_run_whose_lease_was_taken_over_stops_before_it_applies(world: Callable[..., World]) -> None:
    w = world()
    plan = w.provisioner.plan

    def slow(pools: Sequence[PoolSpec], run: Path) -> ProvisionPlan:
        w.clock.advance(POOL_TTL + timedelta(minutes=1))
        w.store.acquire(POOL, "grace@there:1", POOL_TTL)
        return plan(pools, run)

    w.provisioner.plan = slow  # type: ignore[method-assign,assignment]
    with pytest.raises(LeaseHeld) as caught:
        w.run()
    assert caught.value.code == "lease.lost"
    assert w.provisioner.tried == []


def test_a_run_that_slept_while_another_took_over_removes_nothing_more(world: Callable[..., World]) -> None:
    """Azure's ids are names: what was an orphan when it was listed may be a machine that the other run has made since."""
    w = world()
    w.run()
    for n in (1, 2):
        w.cloud.leave(w.intent.tag, f"/vm/ghost-{n}", "machine", "Failed")
    real = w.cloud.remove

    def slow(one: Leftover) -> None:
        real(one)
        w.clock.advance(POOL_TTL + timedelta(minutes=1))
        w.store.acquire(POOL, "grace@there:1", POOL_TTL)

    w.cloud.remove = slow  # type: ignore[method-assign]
    with pytest.raises(LeaseHeld) as caught:
        w.run()
    assert caught.value.code == "lease.lost"
    assert w.cloud.removed == ["/vm/ghost-1"]


def test_what_is_left_is_told_with_how_to_remove_it(world: Callable[..., World]) -> None:
    w = world(TEXT["VMMarketplaceInvalidInput"], TEXT["VMMarketplaceInvalidInput"])
    with pytest.raises(ProvisionFailed):
        w.run()
    w.cloud.remove = lambda one: None  # type: ignore[method-assign]
    w.cloud.leave(w.intent.tag, "/vm/half", "machine", "Failed")
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.details == (
        "still there: machine half (Failed)",
        "go on with: fleetctl provision; or remove all of it: fleetctl release mi300x-a",
    )


def test_machines_of_a_group_that_the_state_knows_are_no_orphans_and_a_loose_group_goes_first(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    tag = w.intent.tag
    for one in (
        Leftover(id="i-1", kind="machine", name="i-1", state="running", holder="MI300X-A-1"),
        Leftover(id="i-2", kind="machine", name="i-2", state="running", holder="loose"),
        Leftover(id="loose", kind="other", name="loose", state="group", rank=-1),
        Leftover(id="vpc-1", kind="other", name="v", state="vpc", rank=8),
        Leftover(id="subnet-1", kind="other", name="s", state="subnet", rank=4),
    ):
        w.cloud.things[one.id] = (tag, one)
    w.run()
    assert w.cloud.removed == ["loose", "i-2", "subnet-1", "vpc-1"]


def test_a_pool_that_was_handed_out_keeps_its_guard(world: Callable[..., World]) -> None:
    w = world()
    w.run()
    w.run()
    assert [s.serves for s in (w.provisioner.tried[0], w.provisioner.asked[POOL])] == [False, True]


def test_a_terraform_left_at_work_is_waited_for(world: Callable[..., World]) -> None:
    w = world(stop_at="planned")
    with pytest.raises(_Stopped):
        w.run()
    w.provisioner.locked_by = "ada@here"
    looks = 0

    def on_step(_: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            w.provisioner.locked_by = ""

    w.clock._on_step = on_step
    assert len(w.run().hosts) == 2
    assert looks == 3


def test_a_state_locked_by_somebody_else_is_told_at_once(world: Callable[..., World]) -> None:
    w = world()
    w.provisioner.locked_by = "grace@build-7"
    before = w.clock.now()
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.code == "provision.locked"
    assert w.clock.now() == before


def test_the_lease_of_a_living_holder_is_not_taken(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    w = world()
    w.store.acquire(POOL, "ada@here:1", timedelta(minutes=5))
    with pytest.raises(LeaseHeld):
        w.run()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("planning pool p: Error: write /x: no space left on device", "provision.disk_full"),
        ("planning pool p: init failed: Failed to query available provider packages for hashicorp/azurerm", "provision.provider_missing"),
        ("planning pool p: building account: could not acquire access token to parse claims", "credentials.refused"),
        ("planning pool p: No valid credential sources found", "credentials.refused"),
        ("planning pool p: api error ExpiredToken: The provided token has expired", "credentials.refused"),
        ("planning pool p: something else", "provision.plan_failed"),
    ],
)
def test_a_plan_s_failure_is_told_under_the_code_of_its_cause(said: str, code: str) -> None:
    assert explained(ProvisionFailed("provision.plan_failed", said)).code == code


def test_another_workspace_of_the_same_fleet_never_takes_this_one_s_machines_for_leftovers(tmp_path: Path) -> None:
    """Both count their leases from 1, and the fleet file, with its lineage, is shared."""
    ada, grace = World(tmp_path / "a"), World(tmp_path / "g")
    grace.cloud = grace.provisioner.cloud = ada.cloud
    grace.clock.advance(timedelta(seconds=1))
    ada.run()
    ada.cloud.leave(ada.intent.tag, "/vm/mi300x-a-1", state="Succeeded")
    grace.run()
    assert ada.cloud.removed == []
    assert grace.intent.tag != ada.intent.tag


def test_hosts_in_the_state_serve_though_the_records_were_lost_or_are_another_workspace_s(tmp_path: Path) -> None:
    """Nothing of them may be destroyed for another place, whatever fails first."""
    ada = World(tmp_path / "a")
    ada.run()
    grace = World(tmp_path / "g", spec=replace(SPEC, count=3), keeps=False)
    grace.provisioner = ada.provisioner
    for again in range(2):  # a run that failed leaves an intent on record, and still no host
        ada.provisioner.refusals[:] = [TEXT["RequestLimitExceeded"], TEXT["AllocationFailed"]]
        with pytest.raises(CapacityUnavailable):
            grace.run()
        assert grace.store.get(PoolHosts, POOL) is None
        assert not grace.intent.fresh, again
    assert {(s.region, s.zone) for s in ada.provisioner.tried} == {("lab", "1")}, "nowhere else is tried"
    assert all(s.serves for s in ada.provisioner.tried[1:])
    assert [h.id for h in ada.provisioner.outputs(POOL)][:2] == ["mi300x-a-1", "mi300x-a-2"]


@pytest.mark.parametrize(("said", "kept"), [("f1-mi300x-a-7-0a1b2c3d", True), ("x; rm -rf /", False), ("", False), ("a" * 300, False)])
def test_hosts_of_a_shared_state_keep_the_tag_that_they_were_made_under(said: str, kept: bool, tmp_path: Path) -> None:
    ada = World(tmp_path / "a")
    ada.run()
    real = ada.provisioner.outputs

    def outputs(pool: PoolId) -> tuple[Host, ...]:
        return tuple(replace(h, variables=(("cloud_id", "/vm/1"), ("intent", said))) for h in real(pool))

    grace = World(tmp_path / "g")
    grace.provisioner = ada.provisioner
    grace.provisioner.outputs = outputs  # type: ignore[method-assign]
    grace.run()
    assert (grace.intent.tag == said) is kept
    assert grace.intent.tag.startswith("f1-mi300x-a-")


def test_an_interrupted_run_says_how_to_go_on_and_what_stands_and_ends_with_130(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world()
    stopped = ProvisionFailure(code="provision.interrupted", text="applying pool mi300x-a: stopped; its state is written")

    def apply(p: ProvisionPlan, token: Token, on: object) -> ProvisionFailure:
        w.cloud.leave(w.intent.tag, "/vm/mi300x-a-1", state="Creating")
        return stopped

    monkeypatch.setattr(w.provisioner, "apply", apply)
    with pytest.raises(Interrupted) as caught:
        w.run()
    assert (caught.value.code, caught.value.exit_code) == ("provision.interrupted", 130)
    assert "fleetctl provision" in caught.value.hint
    assert "still there: machine mi300x-a-1 (Creating)" in caught.value.details
    assert w.intent.step == "failed", "the next run takes it up"


def test_credentials_that_expire_in_mid_apply_end_with_what_is_known_to_stand(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(TEXT["ExpiredAuthenticationToken"])
    real = w.provisioner.apply

    def apply(p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        w.cloud.down = True
        return real(p, token, on)

    monkeypatch.setattr(w.provisioner, "apply", apply)
    monkeypatch.setattr(w.provisioner, "ids", lambda _: frozenset({"/vm/1", "/nic/1"}))
    with pytest.raises(CredentialsMissing) as caught:
        w.run()
    assert caught.value.code == "credentials.refused"
    assert "az login" in caught.value.hint
    assert caught.value.details[0] == "still there: 2 resources in the state of pool mi300x-a"
    w.cloud.down = False
    monkeypatch.undo()
    assert len(w.run().hosts) == 2


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "provision.disk_full"),
        (errno.EDQUOT, "provision.disk_full"),
        (errno.EACCES, "provision.folder"),
        (errno.EROFS, "provision.folder"),
        (errno.ENOTDIR, "provision.folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_clear_error(
    number: int, code: str, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world()

    def plan(pools: object, run: object) -> ProvisionPlan:
        raise OSError(number, os.strerror(number), "/w/.fleetctl/terraform/mi300x-a")

    monkeypatch.setattr(w.provisioner, "plan", plan)
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert caught.value.code == code
    assert "/w/.fleetctl/terraform/mi300x-a" in caught.value.message
    assert "fleetctl provision" in caught.value.hint
    assert w.cloud.things == {}


def test_a_terraform_that_was_left_at_work_is_waited_for_before_anything_is_cleared(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is making carries the tag and is in no state yet: removed too early it would be made for nothing."""
    w = world()
    left = ProvisionFailure(code="provision.timeout", text="process 7 still works and holds the state's lock", at_work=True)

    def apply(p: ProvisionPlan, token: Token, on: object) -> ProvisionFailure:
        w.cloud.leave(w.intent.tag, "/vm/in-the-making", state="Creating")
        w.provisioner.locked_by = "ada@here"
        return left

    with monkeypatch.context() as patch:
        patch.setattr(w.provisioner, "apply", apply)
        with pytest.raises(ProvisionFailed):
            w.run()
    seen: list[Progress] = []
    cleared_at: list[str] = []

    def remove(one: Leftover) -> None:
        cleared_at.append(w.provisioner.locked_by)
        del w.cloud.things[one.id]

    monkeypatch.setattr(w.cloud, "remove", remove)

    def on_step(_: object) -> None:
        w.provisioner.locked_by = ""

    w.clock._on_step = on_step
    (outcome,) = provision(w._plan(), _fleet(), w.folder / "again", w.ports(), seen.append)
    assert (cleared_at, len(outcome.hosts)) == ([""], 2)
    waits = [p for p in seen if p.step == "wait for the last run"]
    assert len(waits) == 1
    assert "locked by ada@here" in waits[0].text


@pytest.mark.parametrize("told", [None, ()], ids=["nothing-on-record", "released-before"])
def test_hosts_that_another_workspace_made_in_a_shared_state_serve_though_a_try_of_ours_failed(told: object, tmp_path: Path) -> None:
    """Our own unfinished try must not make them ours to replace."""
    grace, ada = World(tmp_path / "g"), World(tmp_path / "a", [TEXT["VMMarketplaceInvalidInput"]], keeps=False)
    grace.clock.advance(timedelta(seconds=1))
    with pytest.raises(ProvisionFailed):
        ada.run()
    if told is not None:
        ada.store.put(POOL, PoolHosts(pool=POOL, hosts=()))
    grace.run()
    real = grace.provisioner.outputs

    def outputs(pool: PoolId) -> tuple[Host, ...]:
        return tuple(replace(h, variables=(("intent", grace.intent.tag),)) for h in real(pool))

    ada.provisioner = grace.provisioner
    grace.provisioner.outputs = outputs  # type: ignore[method-assign]
    ada.spec = replace(SPEC, sku="lab-other")
    ada.places = (replace(FIRST, sku="lab-other"), AWAY)
    with pytest.raises(ProvisionFailed) as caught:
        ada.run()
    assert caught.value.code == "provision.refused"
    assert len(real(POOL)) == 2
    assert grace.provisioner.asked[POOL].serves, "prevent_destroy stands"


def test_nothing_is_cleared_where_the_state_of_a_pool_with_hosts_holds_nothing(world: Callable[..., World]) -> None:
    """A group may have replaced the machines that are on record: neither their names nor their ids say that they serve."""
    w = world()
    w.run()
    w.provisioner._states.clear()
    for one in (
        Leftover(id="i-new", kind="machine", name="i-new", state="running", holder="g"),
        Leftover(id="g", kind="other", name="g", state="group", rank=-1),
    ):
        w.cloud.things[one.id] = (w.intent.tag, one)
    with pytest.raises(ProvisionFailed) as caught:
        w.run()
    assert (caught.value.code, w.cloud.removed) == ("provision.state_lost", [])


@pytest.mark.parametrize("code", ["AllocationFailed", "VMMarketplaceInvalidInput"])
def test_a_cloud_that_cannot_be_asked_for_leftovers_does_not_hide_what_it_refused(
    code: str, world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(TEXT[code])
    real = w.provisioner.apply

    def apply(p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        w.cloud.down = True
        return real(p, token, on)

    monkeypatch.setattr(w.provisioner, "apply", apply)
    with pytest.raises(CapacityUnavailable) as caught:
        w.run()
    assert caught.value.code == "capacity.unreachable"
    assert any(code in line for line in caught.value.details)
    w.cloud.down = False
    monkeypatch.undo()
    assert len(w.run().hosts) == 2
    assert w.cloud.things == {}, "the next run removes what was left"
