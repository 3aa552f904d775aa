"""Provision: the whole command over the lab double of Azure with a real Terraform: made, refused, moved on, checked, killed, bad input."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.doubles.arm import ArmDouble
from tests.lab.azure_bench import POOL, AzureBench

pytest.importorskip("tf", reason="the package tf (a development dependency) is not installed")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH"),
]
SKU = "Standard_ND96isr_MI300X_v5"
STEPS = ("intent", "planned", "applied", "compensating", "compensated", "done")
ZONES = {f"pool.{POOL}.zones": "1,2,3"}


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ArmDouble]:
    with ArmDouble(tmp_path) as double:
        yield double


@pytest.fixture
def make(tmp_path: Path, arm: ArmDouble) -> Callable[..., AzureBench]:
    return lambda settings=None: AzureBench(tmp_path, arm, settings)


def test_an_amd_pool_is_shown_made_kept_and_checked(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    status, out, err = bench.run("provision", "--dry-run")
    assert status == 0, err
    assert f"  + {POOL}-1  azurerm_linux_virtual_machine\n" in out
    assert "USD/h by contract price" in out
    assert arm.machines() == {}

    status, out, err = bench.run("provision")
    assert status == 0, err
    assert "cost: +" in err, "the plan is shown before it is applied"
    count = len(arm.machines())
    assert count >= 2
    assert set(arm.machines().values()) == {"Succeeded"}
    assert f"hosts: {POOL}-1" in out
    vm = arm.of("microsoft.compute/virtualmachines")[0]
    assert vm["tags"]["fleetctl-pool"] == POOL
    assert f"-{POOL}-2-" in vm["tags"]["fleetctl-intent"], "a lease's token, and the dry run took the first"
    puts = arm.requests("PUT", "virtualmachines")

    assert "no changes" in bench.ok("provision")
    assert arm.requests("PUT", "virtualmachines") == puts
    assert bench.run("provision", "--check")[0] == 0

    arm.tag(f"{POOL}-1", {"somebody": "else"})
    status, out, _ = bench.run("provision", "--check")
    assert (status, "drift:" in out) == (3, True)


@pytest.mark.slow
def test_a_size_that_is_refused_is_left_for_the_next_one(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make({**ZONES, f"pool.{POOL}.sizes": "Standard_ND96is_MI300X_v5"})
    arm.refuse("SkuNotAvailable", size=SKU)
    pool = bench.provisioned()
    assert pool["place"]["sku"] == "Standard_ND96is_MI300X_v5"
    assert [a["code"] for a in pool["attempts"]] == ["SkuNotAvailable"]
    assert set(arm.machines().values()) == {"Succeeded"}
    assert bench.orphans() == []


@pytest.mark.slow
def test_a_machine_that_failed_in_polling_is_removed_before_the_next_place(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make({f"pool.{POOL}.regions": "westus3", f"pool.{POOL}.os_disk": '{"ephemeral": false}'})
    arm.refuse("AllocationFailed", how="polling", region="eastus2")
    pool = bench.provisioned()
    assert pool["place"]["region"] == "westus3"
    machines = arm.of("microsoft.compute/virtualmachines")
    assert {m["location"] for m in machines} == {"westus3"}
    assert {m["properties"]["provisioningState"] for m in machines} == {"Succeeded"}
    assert bench.orphans() == []
    assert {c["location"] for c in arm.of("microsoft.network/networkinterfaces")} == {"westus3"}
    assert len(arm.of("microsoft.compute/disks")) == len(machines), "the failed machine's disk is gone too"
    assert "no changes" in bench.ok("provision"), "a disk in use is no orphan"


@pytest.mark.slow
def test_a_quota_is_found_before_anything_is_made(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    arm.world.limits[("eastus2", "standardNDISv5MI300XFamily")] = 0
    status, _, err = bench.run("provision")
    assert status == 1
    assert "capacity" in err
    assert arm.of("microsoft.resources/resourcegroups") == []
    status, out, _ = bench.run("capacity", "-o", "json")
    assert status == 0
    place = json.loads(out)["items"][0]["places"][0]
    assert place["kind"] == "no"
    assert "standardNDISv5MI300XFamily" in place["reason"]
    status, _, err = bench.run("plan")
    assert (status, "plan.conflict" in err) == (1, True), "the fleet file pins a target that cannot be had"
    assert "Nothing to make" in bench.ok("provision"), "a plan made now does not count on that pool"


@pytest.mark.slow
def test_throttling_is_waited_out(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    arm.refuse("TooManyRequests", how="throttle", times=2, retry_after=0)
    assert make().provisioned()["done"]["added"] > 0


@pytest.mark.slow
def test_refused_credentials_end_with_their_own_exit_status_and_nothing_made(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    arm.world.deny = 401
    status, _, err = bench.run("provision")
    assert status == 4, err
    assert "credentials" in err
    arm.world.deny = 0
    assert arm.machines() == {}


def _killed_then_converges(bench: AzureBench, arm: ArmDouble, step: str) -> None:
    status, _, err = bench.run("provision", module="tests.lab.killed", KILL_AT=step)
    assert status == -9, err
    bench.ok("provision")
    assert set(arm.machines().values()) == {"Succeeded"}
    assert bench.orphans() == []
    assert bench.run("provision", "--check")[0] == 0


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_fleetctl_killed_at_a_step_converges_without_orphan_or_double(step: str, make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make({f"pool.{POOL}.regions": "westus3", f"pool.{POOL}.partial": "move"})
    arm.refuse("AllocationFailed", how="polling", region="eastus2", times=1)
    _killed_then_converges(bench, arm, step)


@pytest.mark.crash
@pytest.mark.parametrize("seed", [pytest.param(n, marks=[] if n < 2 else pytest.mark.slow) for n in range(20)])
def test_terraform_killed_in_an_apply_converges_without_orphan_or_double(
    seed: int, make: Callable[..., AzureBench], arm: ArmDouble
) -> None:
    """Every other seed kills fleetctl too, as a machine that dies does."""
    bench = make()
    arm.world.slow_s = 0.4
    after = random.Random(seed).randrange(1, 12)
    bench.kill_terraform_after(after, fleetctl_too=seed % 2 == 1)
    bench.ok("provision")
    assert set(arm.machines().values()) == {"Succeeded"}
    assert bench.orphans() == []
    assert bench.run("provision", "--check")[0] == 0


@pytest.mark.crash
@pytest.mark.slow
def test_a_pool_whose_making_was_killed_can_be_given_back_at_once(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    """azurerm keeps a resource group that holds machines of which no state knows: they go first."""
    bench = make()
    arm.world.slow_s = 0.5
    bench.kill_terraform_after(14, fleetctl_too=True)
    deadline = time.monotonic() + 20
    while not arm.machines() and time.monotonic() < deadline:  # the request was under way
        time.sleep(0.05)
    assert bench.orphans()
    bench.ok("release", POOL, "--router-gone", "edge", "--confirm", POOL)
    assert arm.world.resources == {}
