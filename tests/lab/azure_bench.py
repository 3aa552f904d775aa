"""Provision, tests: a workspace whose AMD pool is made on the lab double of Azure, by the command line and a real Terraform."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.doubles.arm import ArmDouble
from tests.doubles.arm_facts import SUBSCRIPTION
from tests.doubles.mirror import make_mirror

ROOT = Path(__file__).resolve().parents[2]
POOL = "mi300x-eastus2"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExampleExampleExampleExampleExampleExampleExample0 ops@example.com"


class AzureBench:
    """A workspace, the double, and the command line.

    Args:
        settings: more of the fleet file's settings.
    """

    def __init__(self, folder: Path, arm: ArmDouble, settings: dict[str, str] | None = None) -> None:
        self.arm = arm
        self.workspace = folder / "w"
        self.workspace.mkdir()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "FLEETCTL_", "AZURE_", "ARM_", "AWS_"))}
        self.environ = {
            **kept,
            **arm.environment,
            "TF_CLI_CONFIG_FILE": str(make_mirror(folder)),
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
        }
        self.ok("init", "example")
        self.fleet = self.workspace / "inventory" / "example" / "fleet.yaml"
        given = {"azure.subscription_id": SUBSCRIPTION, "azure.endpoint": arm.url, "azure.ca": str(arm.certificate)}
        given |= {"terraform.azure.admin_public_key": KEY, **(settings or {})}
        lines = "\n".join(f"  {k}: {json.dumps(v)}" for k, v in given.items())
        text = self.fleet.read_text().replace("approvals: 1 ", "approvals: 0 ").replace("settings: {}", f"settings:\n{lines}")
        gpus = "    accelerators_per_replica: 4\n"
        text = text.replace(f"    replicas: 6\n{gpus}", f"    replicas: 4\n{gpus}", 1)  # 3 VMs
        self.fleet.write_text(text)
        self.ok("plan")

    def start(self, *argv: str, module: str = "fleetctl.cli", **environ: str) -> subprocess.Popen[str]:
        """Start fleetctl, or a test's way into it."""
        return subprocess.Popen(
            [sys.executable, "-m", module, "-C", str(self.workspace), *argv],
            env={**self.environ, **environ},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *argv: str, module: str = "fleetctl.cli", **environ: str) -> tuple[int, str, str]:
        """Run fleetctl to its end; return exit status and both outputs."""
        child = self.start(*argv, module=module, **environ)
        out, err = child.communicate(timeout=600)
        return child.returncode, out, err

    def ok(self, *argv: str) -> str:
        """Run it; it must end well."""
        status, out, err = self.run(*argv)
        assert status == 0, err + out
        return out

    def provisioned(self) -> dict[str, Any]:
        """Provision and return the JSON of the pool."""
        items: list[dict[str, Any]] = json.loads(self.ok("provision", "-o", "json"))["items"]
        return items[0]

    @property
    def folder(self) -> Path:
        """Return the pool's own copy of the stack."""
        return self.workspace / ".fleetctl" / "terraform" / POOL

    def state_ids(self) -> set[str]:
        """Return the ids of the machines in the pool's state."""
        state = json.loads((self.folder / "terraform.tfstate").read_text())
        return {
            i["attributes"]["id"].lower()
            for r in state["resources"]
            if r["type"] == "azurerm_linux_virtual_machine"
            for i in r["instances"]
        }

    def orphans(self) -> list[str]:
        """Return the ids of machines at the double that no state knows."""
        known = self.state_ids()
        return [r["id"] for r in self.arm.of("microsoft.compute/virtualmachines") if r["id"].lower() not in known]

    def kill_terraform_after(self, puts: int, *, fleetctl_too: bool = False) -> None:
        """Provision, and kill Terraform (fleetctl first, if asked) once the double has seen that many PUTs; wait for the end."""
        child = self.start("provision")
        deadline = time.monotonic() + 200
        while child.poll() is None and time.monotonic() < deadline:
            if self.arm.requests("PUT", "/") >= puts:
                if fleetctl_too:
                    child.kill()
                for pid in _applies_in(self.folder):
                    (os.killpg if fleetctl_too else os.kill)(pid, signal.SIGKILL)  # it leads a group; fleetctl ends what it leaves there
                break
            time.sleep(0.01)
        child.communicate(timeout=200)


def _applies_in(folder: Path) -> list[int]:
    """Return the processes that run `terraform apply` in a folder; only those are ours."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0")
                here = (entry / "cwd").resolve()
            except OSError:
                continue
            if here == folder and b"apply" in argv:
                found.append(int(entry.name))
    return found
