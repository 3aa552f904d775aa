"""Provision with what is wrong: one clear error, its code and next command; nothing is made, or it is told with how to remove it.

A real Terraform over the lab double of Azure.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("tf", reason="the package tf (a development dependency) is not installed")

from tests.doubles.arm import ArmDouble
from tests.lab.azure_bench import POOL, ROOT, AzureBench

pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH"),
]
SKU = "Standard_ND96isr_MI300X_v5"


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ArmDouble]:
    with ArmDouble(tmp_path) as double:
        yield double


@pytest.fixture
def make(tmp_path: Path, arm: ArmDouble) -> Callable[..., AzureBench]:
    return lambda settings=None: AzureBench(tmp_path, arm, settings)


def _refused(bench: AzureBench, *argv: str, status: int, code: str, module: str = "fleetctl.cli", **environ: str) -> str:
    """Run it; it must end with that status and exactly one error of that code that names a next command. Returns standard error."""
    got, out, err = bench.run(*(argv or ("provision",)), module=module, **environ)
    assert (got, out) == (status, ""), err + out
    errors = [line for line in err.splitlines() if line.startswith("error[")]
    assert len(errors) == 1, err
    assert errors[0].startswith(f"error[{code}]:"), err
    assert "fleetctl" in errors[0] or "pip install" in errors[0] or "the same command" in errors[0], errors[0]
    assert "Traceback" not in err
    return err


def test_a_size_that_nobody_knows(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    text = bench.fleet.read_text()
    bench.fleet.write_text(text.replace(f"sku: {SKU}", f"sku: {SKU[:-1]}9"))
    out = bench.ok("plan")
    assert "3 blocked" in out
    assert "catalog.no_sku" in out
    assert f"SKU {SKU[:-1]}9 of pool {POOL}" in " ".join(out.split())
    assert "3 cells are blocked, see: fleetctl show" in bench.ok("provision")
    assert arm.machines() == {}


@pytest.mark.slow
def test_a_stand_in_size_that_the_region_does_not_know(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make({f"pool.{POOL}.sizes": f"{SKU[:-1]}9"})
    arm.world.limits["eastus2", "standardNDISv5MI300XFamily"] = 0
    err = _refused(bench, status=1, code="capacity.no")
    assert f"eastus2 does not offer {SKU[:-1]}9" in err
    assert "0 vCPUs" in err
    assert arm.of("microsoft.resources/resourcegroups") == []


@pytest.mark.slow
def test_a_region_that_is_closed_to_the_subscription(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    arm.world.restricted[SKU, "eastus2"] = ("NotAvailableForSubscription", ())
    err = _refused(bench, status=1, code="capacity.no")
    assert "the subscription may not use Standard_ND96isr_MI300X_v5 in eastus2" in err
    assert arm.of("microsoft.resources/resourcegroups") == []


@pytest.mark.slow
def test_no_credentials_at_all(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    bench.fleet.write_text("\n".join(line for line in bench.fleet.read_text().splitlines() if "azure.endpoint" not in line) + "\n")
    bench.ok("plan")
    err = _refused(bench, status=4, code="credentials.azure", module="tests.lab.no_identity")
    assert "azure-identity" in err
    assert arm.machines() == {}


@pytest.mark.slow
def test_credentials_that_expire_while_machines_are_made(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    enough = threading.Event()

    def expire() -> None:
        while not enough.wait(0.01) and arm.requests("PUT", "virtualmachines") < 1:
            pass
        arm.world.deny = 401

    watcher = threading.Thread(target=expire, daemon=True)
    watcher.start()
    err = _refused(bench, status=4, code="credentials.refused")
    enough.set()
    watcher.join(timeout=10)
    assert "az login" in err
    assert f"or remove all of it: fleetctl release {POOL}" in err, "what stands is told"
    arm.world.deny = 0
    bench.ok("provision")
    assert set(arm.machines().values()) == {"Succeeded"}
    assert bench.orphans() == []


@pytest.mark.slow
def test_another_size_is_never_put_under_machines_in_service(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    bench.ok("provision")
    bench.fleet.write_text(bench.fleet.read_text().replace(f"sku: {SKU}", "sku: Standard_ND96is_MI300X_v5"))
    bench.ok("plan")
    err = _refused(bench, status=1, code="provision.refused")
    assert "would be changed in place (size), which restarts it" in err
    assert {m["properties"]["hardwareProfile"]["vmSize"] for m in arm.of("microsoft.compute/virtualmachines")} == {SKU}


def test_a_setting_that_no_stack_knows(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    err = _refused(make({f"pool.{POOL}.os_dsik": "{}"}), status=2, code="config.terraform_variable")
    assert "is it os_disk?" in err
    assert arm.of("microsoft.resources/resourcegroups") == []


def test_a_state_that_somebody_else_has_locked(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    bench.folder.mkdir(parents=True)
    state = bench.folder / "terraform.tfstate"
    state.touch()
    info = {"ID": "4f1", "Operation": "OperationTypeApply", "Who": "grace@build-7", "Created": "2026-11-30T10:40:20Z"}
    (bench.folder / ".terraform.tfstate.lock.info").write_text(json.dumps({**info, "Version": "1.11.4"}))
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        err = _refused(bench, status=1, code="provision.locked")
    finally:
        holder.communicate(timeout=10)
    assert "grace@build-7" in err
    assert arm.of("microsoft.resources/resourcegroups") == []


def test_a_plan_file_changed_by_one_byte_is_not_applied(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    err = _refused(make(), status=1, code="provision.changed", module="tests.lab.tampered", FLIP=POOL)
    assert "nothing was applied" in err
    assert arm.of("microsoft.resources/resourcegroups") == []


@pytest.mark.slow
def test_a_provider_that_cannot_be_had(make: Callable[..., AzureBench], arm: ArmDouble, tmp_path: Path) -> None:
    bench = make()
    (tmp_path / "none.rc").write_text('provider_installation {\n  filesystem_mirror {\n    path = "/nonexistent"\n  }\n}\n')
    _refused(bench, status=1, code="provision.provider_missing", TF_CLI_CONFIG_FILE=str(tmp_path / "none.rc"))
    assert arm.of("microsoft.resources/resourcegroups") == []
    bench.ok("provision")
    assert set(arm.machines().values()) == {"Succeeded"}, "once it can be had, the same command goes on"


def test_a_terraform_that_is_too_old(make: Callable[..., AzureBench], arm: ArmDouble, tmp_path: Path) -> None:
    old = tmp_path / "terraform-old"
    old.write_text('#!/bin/sh\necho \'{"terraform_version": "1.4.6"}\'\n')
    old.chmod(0o755)
    err = _refused(make(), status=1, code="tool.terraform_old", FLEETCTL_TERRAFORM=str(old))
    assert "1.4.6" in err
    assert arm.of("microsoft.resources/resourcegroups") == []


@pytest.mark.slow
def test_a_full_disk(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    """The state's folder is a file system of 64 KiB, in a mount name space of the child's own."""
    if subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/mnt"], capture_output=True, check=False
    ).returncode:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    bench = make()
    folder = bench.workspace / ".fleetctl" / "terraform"
    folder.mkdir(parents=True)
    mount = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"', str(folder)]
    argv = [*mount, sys.executable, "-m", "fleetctl.cli", "-C", str(bench.workspace), "provision"]
    done = subprocess.run(argv, env=bench.environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "error[provision.disk_full]" in done.stderr
    assert arm.of("microsoft.resources/resourcegroups") == []


@pytest.mark.slow
def test_what_was_made_before_an_error_is_told_with_how_to_remove_it(make: Callable[..., AzureBench], arm: ArmDouble) -> None:
    bench = make()
    arm.refuse("VMMarketplaceInvalidInput", how="polling", name=f"{POOL}-2")
    err = _refused(bench, status=1, code="provision.apply_failed")
    assert f"still there: machine {POOL}-1 (Succeeded)" in err
    assert f"or remove all of it: fleetctl release {POOL}" in err
    assert f"{POOL}-2" not in arm.machines(), "the failed one is not left behind"
    arm.world.rules.clear()
    bench.ok("release", POOL, "--router-gone", "edge", "--confirm", POOL)
    assert arm.world.resources == {}, "and then nothing is"
