"""Every role, and the site play: interrupted at 5 random points, one of each kind, the next run makes what an undisturbed one makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleetctl.lab.standins import OLD
from tests.lab import nspawn_interruptions as ni
from tests.lab import nspawn_lab as nl

pytestmark = [
    pytest.mark.lab,
    pytest.mark.crash,
    pytest.mark.timeout(3400),
    pytest.mark.skipif(bool(nl.why_not()), reason=nl.why_not() or "it can"),
]
PACKAGES = ("apt_ready",)
SERVES = ("apt_ready", "container_engine")
ALWAYS = ("apt_ready", "amdgpu_driver")
"""The two that every `make test` interrupts."""
ROCM = {
    "preflight": (),
    "apt_packages": (),
    "node_manifest": (),
    "apt_ready": (),
    "kernel_pin": PACKAGES,
    "amdgpu_driver": PACKAGES,
    "rocm": PACKAGES,
    "accelerator_access": (),
    "host_tuning": (),
    "nvme_raid": (),
    "container_engine": PACKAGES,
    "translation_layer": (),
    "model_store": (),
    "model_server": (*SERVES, "accelerator_access", "translation_layer"),
    "gpu_exporter": PACKAGES,
    "health_gate": (*SERVES, "accelerator_access", "translation_layer", "model_server"),
}
"""Roles of ROCm nodes, and those that must have been there before."""
NVIDIA = {"nvidia_driver": PACKAGES, "dcgm_exporter": PACKAGES}
GIVEN = {
    "nvidia_driver_packages": [{"name": "standin-nvidia-utils", "version": OLD}],
    "dcgm_exporter_packages": [{"name": "standin-exporter", "version": OLD}],
    "dcgm_exporter_service": "standin-exporter",
}


@pytest.fixture(scope="module")
def bench() -> Iterator[ni.Bench]:
    with ni.bench() as made:
        yield made


@pytest.mark.parametrize("role", ALWAYS)
def test_a_role_interrupted_at_5_random_points_converges(bench: ni.Bench, role: str) -> None:
    ni.interrupt_and_compare(bench, "rocm_node", role, bench.variables(), bench.begin_with(ROCM[role]))


@pytest.mark.slow
@pytest.mark.parametrize("role", [r for r in ROCM if r not in ALWAYS])
def test_any_role_interrupted_at_5_random_points_converges(bench: ni.Bench, role: str) -> None:
    ni.interrupt_and_compare(bench, "rocm_node", role, bench.variables(), bench.begin_with(ROCM[role]))


@pytest.mark.slow
@pytest.mark.parametrize("role", NVIDIA)
def test_a_role_of_nvidia_nodes_interrupted_at_5_random_points_converges(bench: ni.Bench, role: str) -> None:
    ni.interrupt_and_compare(bench, "nvidia_node", role, bench.variables() | GIVEN, bench.begin_with(NVIDIA[role]))


@pytest.mark.slow
def test_the_site_play_interrupted_at_5_random_points_converges_and_a_further_run_changes_nothing(bench: ni.Bench) -> None:
    ni.interrupt_and_compare(bench, "site", "", bench.variables(), None)
    (settled,) = bench.run("site", bench.variables())
    assert (settled.state, settled.changed) == ("ok", 0), bench.changed_roles()


@pytest.mark.slow
def test_a_server_whose_run_was_cut_off_before_its_restart_is_restarted_by_the_next(bench: ni.Bench) -> None:
    h, old = bench.host, bench.variables()
    bench.again(bench.begin_with(ROCM["model_server"]))
    assert bench.run("rocm_node", old, tags=["model_server"])[0].state == "ok"
    steps = ni.Steps("model_server")
    own = [p.step for p in bench.seen if steps.take(p)]
    at = own.index("model_server : Find units that are no longer wanted, and what servers were started with") + 1
    units = old["model_server_units"]
    assert isinstance(units, list)
    new = old | {"model_server_units": [units[0] | {"environment": {"TOKEN": "another"}}]}

    def token() -> list[str]:
        pid = h.ssh("systemctl", "show", "-P", "MainPID", "fleetctl-chat.service").stdout.strip()
        return [line for line in h.ssh("sudo", "cat", f"/proc/{pid}/environ").stdout.split("\0") if line.startswith("TOKEN=")]

    before = token()
    ni.interrupted(bench, "rocm_node", "model_server", "kill", at, new)
    assert token() == before, "it was cut off before the restart"
    (result,) = bench.run("rocm_node", new, tags=["model_server"])
    assert (result.state, result.detail) == ("ok", "")
    assert token() == ["TOKEN=another"]
    assert bench.run("rocm_node", new, tags=["model_server"])[0].changed == 0
