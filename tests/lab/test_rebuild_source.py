"""`fleetctl fallback --rebuild` with real Terraform, Ansible and HAProxy: a source that was given back takes its cell home.

What is emulated: hosts are folders, engines answer without a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleetctl.adapters.store.sqlite import SqliteStore
from fleetctl.cli.app import App
from fleetctl.domain.home import HOME_TOKEN_STEP
from fleetctl.domain.ids import PoolId
from fleetctl.lab.service import stop
from fleetctl.usecases.capacity import PoolHosts
from tests.lab.haproxy_lab import CELL, PIN_KEY, Rig, put, rig, until

pytestmark = [pytest.mark.lab, pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH")]
SOURCE, TARGET = PoolId("nvidia-lab"), PoolId("mi300x-lab")
FLEET = """format_version: 1
name: lab
lineage: 6f1c1a52-8a52-4a7e-9d5c-0c8d2f4f7a10
routers:
  edge:
    kind: haproxy
    settings: {{socket: {socket}, map_folder: {map_folder}, log_folder: {log_folder}, url: "{url}"}}
    secrets: {{pin_key: {{kind: file, name: {pin}}}}}
pools:
  nvidia-lab: {{vendor: nvidia, sku: lab-nvidia, region: lab, count: 2, limit: 2, provisioned_by: {by}}}
  mi300x-lab: {{vendor: amd, sku: lab-mi300x, region: lab, count: 2, limit: 2, provisioned_by: existing}}
workloads:
  chat:
    model: {{name: tiny, parameters_billion: 0.1, context_tokens: 2048, precision: bf16, layers: 8, kv_heads: 2, head_dim: 64}}
    engine: vllm
    class: online
    slo: {{latency: 2s, error_ratio: 1%}}
    traffic: {{requests_per_s: 4, trough_per_s: 2, input_tokens: 20, output_tokens: 8, streaming: false}}
    replicas: 2
    accelerators_per_replica: 1
    guardrails: [errors]
    serving: {{kind: emulated, ttft_ms: 5, token_ms: 1, log_sd: 0.1}}
cells:
  chat-lab:
    workload: chat
    region: lab
    source: nvidia-lab
    target: mi300x-lab
    router: {{name: edge, baseline_endpoints: [{baseline}], canary_endpoints: ["127.0.0.1:{canary}"]}}
    lane: {{kind: accepted, reason: "a rehearsal", actor: ada}}
policy: {{approvals: 0}}
settings:
  lab.run: {run}
  lab.hosts: {run}/hosts
  pool.nvidia-lab.owners: "no"
  router.edge.owners: "no"
"""


class Workspace:
    """A workspace whose only cell is on the target, and whose source was given back: nothing listens there."""

    def __init__(self, folder: Path, edge: Rig, by: str = "lab") -> None:
        self.folder, self.edge, self.run_folder = folder, edge, folder / "run"
        (self.run_folder / "hosts").mkdir(parents=True)
        pin = folder / "pin.key"
        pin.write_text(PIN_KEY)
        pin.chmod(0o600)
        servers = edge.backends[CELL]
        baseline = ", ".join(f'"127.0.0.1:{servers[n].port}"' for n in ("b1", "b2"))
        settings = {**edge.connection.settings, "pin": pin, "by": by, "run": self.run_folder}
        place = folder / "inventory" / "lab" / "fleet.yaml"
        place.parent.mkdir(parents=True)
        place.write_text(FLEET.format(baseline=baseline, canary=servers["c1"].port, **settings))
        self.run("plan")
        wiring = App(workspace=str(folder)).wiring
        put(edge.router(), 10_000, token=7)
        wiring.ways_home.write(replace(wiring.ways_home.read(CELL), released=True))
        store = SqliteStore(folder / ".fleetctl" / "store.db", create=False)
        store.put(SOURCE, PoolHosts(pool=SOURCE, hosts=()))
        store.close()
        for name in ("b1", "b2"):
            servers[name].stop()
        until(lambda: all(s == "DOWN" for n, (s, _) in edge.status(CELL).items() if n.startswith("b")), "the source is down")

    def run(self, *args: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "fleetctl.cli.main", "-C", str(self.folder), *args]
        env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)
        assert code is None or done.returncode == code, f"{args} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def weight(self) -> int:
        return self.edge.router().read(CELL).target_bp

    def end(self) -> None:
        for pid in (self.run_folder / "hosts").glob("*/*.pid"):
            stop(pid.parent, pid.stem)


@pytest.fixture
def edge() -> Iterator[Rig]:
    with rig() as found:
        found.healthy(CELL)
        yield found


def test_a_source_that_was_given_back_is_made_anew_and_takes_its_cell_home(tmp_path: Path, edge: Rig) -> None:
    w = Workspace(tmp_path, edge)
    try:
        done = w.run("fallback", "chat", code=1)
        assert "fallback.released" in done.stdout
        assert "make pool nvidia-lab anew" in done.stdout
        assert "--rebuild" in done.stdout
        assert w.weight() == 10_000

        done = w.run("fallback", "chat", "--rebuild", "--dry-run", code=0)
        assert "Making 2 x lab-nvidia in lab as nvidia-lab again, for chat-lab." in done.stderr
        assert "Nothing was changed." in done.stderr
        assert (w.weight(), list((w.run_folder / "hosts").iterdir())) == (10_000, [])

        done = w.run("fallback", "chat", "--rebuild")
        assert "1 of 1 home" in done.stdout
        assert w.weight() == 0
        assert edge.router().read(CELL).token >= 7 + HOME_TOKEN_STEP
        assert sorted(p.name for p in (w.run_folder / "hosts").iterdir()) == ["nvidia-lab-1", "nvidia-lab-2"]
        answer = edge.ask(CELL)
        assert answer.status == 200, "the engines that were just started answer customers"
        wiring = App(workspace=str(tmp_path)).wiring
        assert not wiring.ways_home.read(CELL).released
        kinds = [e.kind for e in wiring.store.events(None, 0)]
        assert [k for k in kinds if k.startswith("fallback.re")] == ["fallback.rebuild", "fallback.rebuilt"]
        wiring.store.close()

        again = w.run("fallback", "chat", "--rebuild")
        assert "nothing is made anew" in again.stderr
    finally:
        w.end()


def test_a_source_that_others_built_is_not_made_here_and_nothing_moves(tmp_path: Path, edge: Rig) -> None:
    w = Workspace(tmp_path, edge, by="existing")
    done = w.run("fallback", "chat", "--rebuild", "--unproven", code=1)
    assert "fallback.cannot_rebuild" in done.stdout
    assert "others built nvidia-lab" in done.stdout
    assert w.weight() == 10_000
