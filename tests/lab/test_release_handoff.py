"""Release: a pool that others built is handed to its owner and looked for until it is gone, by the command line on the double of Azure."""

from __future__ import annotations

import json
import shutil
import ssl
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("tf", reason="the package tf (a development dependency) is not installed")

from tests.doubles.arm import ArmDouble
from tests.doubles.arm_facts import SUBSCRIPTION
from tests.lab.azure_bench import AzureBench

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not on PATH"),
]
POOL = "h200-eastus2"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/old"
MACHINE = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/h200-1"


def _ask(arm: ArmDouble, method: str, path: str, body: object = None) -> None:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer lab"}
    request = urllib.request.Request(f"{arm.url}{path}?api-version=2026-04-01", data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=str(arm.certificate))):
        pass


def test_a_pool_that_others_built_is_handed_over_and_verified_gone(tmp_path: Path) -> None:
    with ArmDouble(tmp_path) as arm:
        bench = AzureBench(tmp_path, arm)
        _ask(arm, "PUT", GROUP, {"location": "eastus2"})
        size = {"hardwareProfile": {"vmSize": "Standard_ND96isr_H200_v5"}, "networkProfile": {"networkInterfaces": []}}
        _ask(arm, "PUT", MACHINE, {"location": "eastus2", "properties": size})
        pool = f"  {POOL}: {{vendor: nvidia, sku: Standard_ND96isr_H200_v5, region: eastus2, count: 1, limit: 1,\n    "
        pool += "hosts: {h200-1: {address: 10.9.1.1, user: fleet}}}\n"
        text = bench.fleet.read_text().replace("\npools:\n", f"\npools:\n{pool}", 1)
        bench.fleet.write_text(text)

        status, out, _ = bench.run("release", POOL, "--handoff")
        assert (status, "--router-gone" in out) == (8, True), "a router that does not answer may serve from it"
        change = tmp_path / "change.md"
        status, out, err = bench.run("release", POOL, "--handoff", "--router-gone", "edge", "--out", str(change))
        assert (status, "names no source" in out) == (8, True), err
        assert "- h200-1, 10.9.1.1" in change.read_text()

        settings = f"{{subscriptions: {SUBSCRIPTION}, endpoint: '{arm.url}', ca_file: '{arm.certificate}', regions: eastus2}}"
        source = f"  prod:\n    kind: azure\n    settings: {settings}\n    secrets: {{token: {{kind: env, name: EMULATED_TOKEN}}}}"
        bench.fleet.write_text(text.replace("sources: {}", f"sources:\n{source}"))
        status, out, err = bench.run("release", POOL, "--handoff", EMULATED_TOKEN="x")
        assert (status, f"pool/{POOL}: 1 machine still there" in out) == (8, True), err + out
        _ask(arm, "DELETE", MACHINE)
        for _ in range(2):
            status, out, err = bench.run("release", POOL, "--handoff", EMULATED_TOKEN="x")
            assert (status, f"pool/{POOL} is gone" in out) == (0, True), err + out
