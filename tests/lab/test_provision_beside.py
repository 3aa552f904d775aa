"""Provision: an AMD pool beside an NVIDIA one on the lab double of Azure: each has its own state, and the ruin of one is not the other's.

The use case itself runs here, over the very ports that the command line gives it, with a plan that makes pools of both vendors.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tf", reason="the package tf (a development dependency) is not installed")

from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
from fleetctl.domain.ids import PoolId
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import PoolSpec
from fleetctl.errors import ProvisionFailed
from fleetctl.usecases.capacity import ProvisionOutcome
from fleetctl.usecases.provision import provision
from fleetctl.wiring import Wiring
from tests.doubles.arm import ArmDouble
from tests.lab.azure_bench import AzureBench

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH"),
]
NVIDIA, AMD = PoolId("h100-eastus2"), PoolId("mi300x-eastus2")
H100 = PoolSpec(pool=NVIDIA, vendor="nvidia", sku="Standard_ND96isr_H100_v5", region="eastus2", count=1, stack="azure", hold=True)
MI300X = PoolSpec(pool=AMD, vendor="amd", sku="Standard_ND96isr_MI300X_v5", region="eastus2", count=1, stack="azure")


class Both:
    """A workspace whose NVIDIA pool is made by fleetctl too."""

    def __init__(self, folder: Path, arm: ArmDouble, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = AzureBench(folder, arm)
        text = self.bench.fleet.read_text().replace("provisioned_by: existing", "provisioned_by: azure", 1)
        self.bench.fleet.write_text(text)
        for name in ("TF_CLI_CONFIG_FILE", "FLEETCTL_ARM_DOUBLE", "FLEETCTL_ARM_DOUBLE_CA", "HOME"):
            monkeypatch.setenv(name, self.bench.environ[name])
        self.folder = folder
        self.wiring = Wiring(
            self.bench.workspace, lambda: self.bench.fleet, store=self.bench.workspace / ".fleetctl" / "store.db", actor="ada"
        )
        self.runs = 0

    def run(self, *specs: PoolSpec, apply: bool = True) -> dict[str, ProvisionOutcome]:
        """Provision these pools; return the outcomes by pool, also of those that were done before one failed."""
        self.runs += 1
        run = self.folder / f"run{self.runs}"
        run.mkdir(mode=0o700)
        plan: Plan = object.__new__(Plan)
        object.__setattr__(plan, "pools", specs)
        found: dict[str, ProvisionOutcome] = {}
        try:
            provision(
                plan,
                self.wiring.fleet,
                run,
                self.wiring.capacity_ports(run),
                lambda _: None,
                apply=apply,
                done=lambda o: found.update({o.spec.pool: o}),
            )
        except ProvisionFailed as e:
            if not found:
                raise
            self.error = e
        return found

    def state(self, pool: PoolId) -> Path:
        return self.bench.workspace / ".fleetctl" / "terraform" / pool / "terraform.tfstate"


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    with ArmDouble(tmp_path) as arm:
        yield Both(tmp_path, arm, monkeypatch)


def test_amd_stands_beside_nvidia_and_a_broken_amd_state_does_not_keep_us_from_nvidia(both: Both) -> None:
    arm = both.bench.arm
    made = both.run(H100, MI300X)
    assert {p: len(o.hosts) for p, o in made.items()} == {NVIDIA: 1, AMD: 1}
    sizes = {m["name"]: m["properties"]["hardwareProfile"]["vmSize"] for m in arm.of("microsoft.compute/virtualmachines")}
    assert sizes == {f"{NVIDIA}-1": H100.sku, f"{AMD}-1": MI300X.sku}
    assert AMD not in both.state(NVIDIA).read_text()
    assert NVIDIA not in both.state(AMD).read_text()

    both.state(AMD).write_text('{"version": 4, "terraform_ver')
    grown = both.run(MI300X, replace(H100, count=2))
    assert {p: len(o.hosts) for p, o in grown.items()} == {NVIDIA: 2}
    assert both.error.code == "provision.plan_failed"
    assert set(arm.machines()) == {f"{NVIDIA}-1", f"{NVIDIA}-2", f"{AMD}-1"}, "nothing of AMD was touched, and nothing made twice"


def test_a_held_pool_is_protected_by_the_guard_and_by_the_check(both: Both) -> None:
    both.run(H100)
    smaller = replace(H100, count=0)
    with pytest.raises(ProvisionFailed) as guarded:
        both.run(smaller)
    assert guarded.value.code == "provision.refused"
    assert "prevent_destroy" in guarded.value.message
    with pytest.raises(ProvisionFailed) as handed_out:
        both.run(replace(smaller, hold=False))
    assert handed_out.value.code == "provision.refused", "hosts that were handed out stay guarded though nobody holds the pool"

    bare = _without_guard(both)
    shown = bare.plan((smaller,), both.folder / "bare")
    assert [c.actions for c in shown.changes if c.type == "azurerm_linux_virtual_machine"] == [("delete",)]
    from fleetctl.planning.check_delta import ALLOWED
    from fleetctl.planning.check_provision import check_provision

    found = check_provision(shown, {NVIDIA}, allowed_types=ALLOWED["azure"])
    assert {f.code for f in found} == {"provision.held"}
    assert set(both.bench.arm.machines()) == {f"{NVIDIA}-1"}


def _without_guard(both: Both) -> TerraformProvisioner:
    """Return the pool's provisioner over a stack whose prevent_destroy somebody has taken out."""
    real = both.wiring.provisioner(H100)
    assert isinstance(real, TerraformProvisioner)
    stacks = both.folder / "terraform"
    shutil.copytree(real._stack_folder.parent.parent, stacks)
    for file in stacks.rglob("*.tf"):
        file.write_text(file.read_text().replace("prevent_destroy = true", "prevent_destroy = false"))
    return TerraformProvisioner(stacks / "stacks" / "azure", real._work_folder, "azure", real._variables, real._tool)


def test_a_pool_of_ours_that_served_is_kept_until_all_is_proven_then_destroyed(both: Both) -> None:
    bench = both.bench
    both.run(H100)
    status, out, err = bench.run("release", NVIDIA, "--confirm", NVIDIA, "-o", "json")
    assert (status, out) == (8, ""), err
    assert "it runs on h100-eastus2 and has not moved" in err
    assert set(bench.arm.machines()) == {f"{NVIDIA}-1"}
    both.run(MI300X)
    released = json.loads(bench.ok("release", AMD, "--router-gone", "edge", "--confirm", AMD, "-o", "json"))
    assert released["destroyed"] == [f"{AMD}-1"]
    assert set(bench.arm.machines()) == {f"{NVIDIA}-1"}
    assert not [r for r in bench.arm.world.resources.values() if AMD in r["id"].lower()]
